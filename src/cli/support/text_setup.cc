#include "cli/support/text_setup.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "text/tokenizer_folder.h"
#include "text/utf8.h"

namespace shoal::cli {
namespace {

bool is_folder_with_tokenizer(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         stat((path + "/tokenizer.json").c_str(), &info) == 0;
}

Result<TextParts> text_of_folder(const std::string& folder) {
  ASSIGN_OR_RETURN(text::TokenizerFolder parts, text::load_tokenizer_folder(folder));
  TextParts result;
  result.tokenizer = std::move(parts.tokenizer);
  result.chat_template = std::move(parts.chat_template);
  result.chat_template_source = std::move(parts.chat_template_source);
  result.chat_template_status = std::move(parts.chat_template_status);
  return result;
}

Result<TextParts> text_of_vocabulary(const text::Vocabulary& vocabulary,
                                     const model::ModelFile& file) {
  TextParts result;
  auto tokenizer = text::Tokenizer::from_vocabulary(vocabulary);
  if (!tokenizer.is_ok()) return tokenizer.status().with_context(file.name());
  result.tokenizer = std::move(tokenizer).value();
  ASSIGN_OR_RETURN(result.chat_template_source, model::read_chat_template(file));
  if (result.chat_template_source.empty()) return result;
  auto parsed = text::ChatTemplate::parse(result.chat_template_source,
                                          text::chat_template_options(*result.tokenizer));
  if (parsed.is_ok()) {
    result.chat_template = std::move(parsed).value();
  } else {
    result.chat_template_status = parsed.status().with_context(file.name());
  }
  return result;
}

}  // namespace

Result<TextParts> make_text(const model::ModelFile& file) {
  ASSIGN_OR_RETURN(const model::TokenizerSource source, model::read_tokenizer_source(file));
  if (source.vocabulary.has_value()) return text_of_vocabulary(*source.vocabulary, file);
  if (!source.folder.empty()) return text_of_folder(source.folder);
  return Status::request(file.name() +
                         ": the file has no vocabulary, so text cannot be turned into tokens; "
                         "use a file that was converted with its tokenizer");
}

Result<TextParts> load_text(const std::string& path) {
  if (is_folder_with_tokenizer(path)) return text_of_folder(path);
  ASSIGN_OR_RETURN(const std::unique_ptr<model::ModelFile> file, model::open_model(path));
  return make_text(*file);
}

Status check_utf8(std::string_view what, std::string_view text) {
  const size_t valid = text::valid_utf8_bytes(text);
  if (valid == text.size()) return Status::ok();
  return Status::request(fmt::format("{} is not UTF-8 at byte {}", what, valid));
}

Result<RenderedPrompt> render_chat(const TextParts& text, const Json& messages) {
  if (text.chat_template == nullptr) {
    if (!text.chat_template_status.is_ok()) {
      return text.chat_template_status.with_context("the model's chat template is unusable")
          .with_context("no chat is possible (--raw PROMPT continues plain text)");
    }
    return Status::request(
        "the model has no chat template, so it was not made for chats; "
        "give --raw and a PROMPT to let it continue plain text");
  }
  for (const Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    RETURN_IF_ERROR(check_utf8(fmt::format("the {} message", message.value("role", "")),
                               content->get_ref<const std::string&>()));
  }
  const Json request = {{"messages", messages}, {"add_generation_prompt", true}};
  const std::string request_text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  RenderedPrompt prompt;
  ASSIGN_OR_RETURN(prompt.text, text.chat_template->render(request_text));
  ASSIGN_OR_RETURN(prompt.ids, text.tokenizer->encode_chat(prompt.text));
  return prompt;
}

}  // namespace shoal::cli
