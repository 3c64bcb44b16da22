#include "runtime/testing/requests.h"

namespace shoal::runtime::testing {

GenerateRequest greedy(uint32_t tokens_max) {
  GenerateRequest request;
  request.sampling.temperature = 0;
  request.tokens_max = tokens_max;
  return request;
}

Result<GenerateResult> try_answer(Engine& engine, const std::vector<TokenId>& prompt,
                                  GenerateRequest request) {
  ASSIGN_OR_RETURN(request.session, engine.open_session());
  request.prompt = prompt;
  ASSIGN_OR_RETURN(GenerateResult result, engine.generate(request));
  RETURN_IF_ERROR(engine.close_session(request.session));
  return result;
}

GenerateResult answer(Engine& engine, const std::vector<TokenId>& prompt, GenerateRequest request) {
  return must(try_answer(engine, prompt, std::move(request)));
}

}  // namespace shoal::runtime::testing
