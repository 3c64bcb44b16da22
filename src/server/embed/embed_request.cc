#include "server/embed/embed_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/ollama/ollama_request.h"

namespace shoal::server {
namespace {

void read_model(Fields* fields, std::string_view where, EmbedRequest* request) {
  if (auto model = fields->text("model")) {
    request->model = std::move(*model);
  } else {
    fields->fail("model", fmt::format("must be a string: {} has the names", where));
  }
}

void read_dimensions(Fields* fields, EmbedRequest* request) {
  request->dimensions = fields->integer("dimensions", {.min = 1});
}

// A string, or a list of strings. An empty string alone is no text.
void read_ollama_input(Fields* fields, EmbedRequest* request) {
  const Json* input = fields->any("input");
  if (input == nullptr) return;
  const Json list = input->is_array() ? *input : Json::array({*input});
  if (list.size() > kTextsMax) {
    fields->fail("input", fmt::format("must have at most {} texts", kTextsMax));
    return;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string* text = list[i].get_ptr<const std::string*>();
    if (text == nullptr) {
      fields->fail("input", "must be a string or a list of strings");
      return;
    }
    if (text->empty() && input->is_array()) {
      fields->fail(fmt::format("input[{}]", i), "is empty, so there is nothing to embed");
      return;
    }
    if (!text->empty()) request->texts.emplace_back(*text);
  }
}

void read_ollama_common(Fields* fields, EmbedRequest* request) {
  read_model(fields, "GET /api/tags", request);
  // Nothing is sampled: of the options only the context matters, the others are just checked.
  OllamaRequest options;
  read_ollama_options(fields, &options);
  read_ollama_keep_alive(fields);
  request->context_wanted = options.context_wanted;
}

}  // namespace

ApiResult<EmbedRequest> parse_openai_embed(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  EmbedRequest request;
  read_model(&fields, "GET /v1/models", &request);
  request.texts = read_prompts(&fields, "input", kTextsMax);
  for (size_t i = 0; i < request.texts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.texts[i]);
    if (text == nullptr || !text->empty()) continue;
    fields.fail("input", "must have no empty text: there is nothing to embed");
  }
  read_dimensions(&fields, &request);
  const auto format = fields.choice("encoding_format", {"float", "base64"});
  if (format == "base64") request.format = EmbeddingFormat::kBase64;
  (void)fields.text("user");  // names the client's own user: nothing here depends on it
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

ApiResult<EmbedRequest> parse_ollama_embed(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  EmbedRequest request;
  read_ollama_common(&fields, &request);
  read_ollama_input(&fields, &request);
  read_dimensions(&fields, &request);
  request.truncates = fields.boolean("truncate").value_or(true);
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

ApiResult<EmbedRequest> parse_ollama_embeddings(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  EmbedRequest request;
  read_ollama_common(&fields, &request);
  auto prompt = fields.text("prompt");
  if (prompt && !prompt->empty()) request.texts.emplace_back(std::move(*prompt));
  request.truncates = true;
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

}  // namespace shoal::server
