#include "text/chat_template.h"

#include "text/rust_bridge.h"

namespace shoal::text {

ChatTemplateOptions chat_template_options(const Tokenizer& tokenizer) {
  const auto text = [&tokenizer](std::optional<int32_t> id) -> std::optional<std::string> {
    if (!id.has_value()) return std::nullopt;
    return std::string(tokenizer.token_text(*id));
  };
  const SpecialTokens& special = tokenizer.special();
  return {.bos_token = text(special.bos),
          .eos_token = text(special.eos),
          .unk_token = text(special.unk),
          .pad_token = text(special.pad)};
}

void ChatTemplate::Free::operator()(ShoalTemplate* impl) const { shoal_template_free(impl); }

ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source,
                                                          const ChatTemplateOptions& options) {
  const ShoalTemplateTokens tokens = {.bos_token = borrow_some(options.bos_token),
                                      .eos_token = borrow_some(options.eos_token),
                                      .unk_token = borrow_some(options.unk_token),
                                      .pad_token = borrow_some(options.pad_token)};
  ShoalTemplate* impl = nullptr;
  ShoalBuffer error{};
  const int code = shoal_template_parse(borrow(source), &tokens, &impl, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(impl));
}

Result<std::string> ChatTemplate::render(std::string_view request_json, std::time_t now) const {
  ShoalBuffer text{};
  ShoalBuffer error{};
  const RustCall call;
  const int code =
      shoal_template_render(impl_.get(), borrow(request_json), int64_t{now}, &text, &error);
  if (code == SHOAL_TEXT_REFUSED) return Status::request(std::string(kRefusal) + take(error));
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return take(text);
}

bool ChatTemplate::is_refusal(const Status& status) {
  return status.code() == StatusCode::kRequest && status.message().starts_with(kRefusal);
}

}  // namespace shoal::text
