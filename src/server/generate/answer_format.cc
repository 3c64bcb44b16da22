#include "server/generate/answer_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/api/raw_json.h"

namespace shoal::server {
namespace {

using Kind = text::GrammarSource::Kind;

constexpr size_t kChoicesOfTextMax = 1024;

std::string pointer_of(std::string_view path) {
  std::string pointer = "/" + std::string(path);
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return pointer;
}

// Collects what a request demands, once.
class Reader {
 public:
  Reader(Fields* fields, std::string_view body) : fields_(fields), body_(body) {}

  void response_format();
  void responses_format();
  // vLLM's older fields and llama.cpp's.
  void local_fields();
  void structured_outputs();
  void ollama_format();
  void anthropic_format(Fields* owner, std::string_view name);
  std::optional<AnswerGrammar> grammar() && { return std::move(grammar_); }

 private:
  void schema(Fields* owner, std::string_view name, std::string_view param);
  void text(Fields* owner, std::string_view name, Kind kind);
  void any_grammar(Fields* owner, std::string_view name);
  void choice(Fields* owner, std::string_view name);
  static std::optional<std::string> type_of(Fields* format);
  void named_schema(Fields* part, std::string_view param);
  void json_schema(Fields* format);
  void finish(Fields* part) {
    if (auto error = part->finish()) fields_->fail(std::move(*error));
  }
  void set(text::GrammarSource source, std::string_view param);

  Fields* fields_;
  std::string_view body_;
  std::optional<AnswerGrammar> grammar_;
};

void Reader::set(text::GrammarSource source, std::string_view param) {
  if (grammar_) {
    fields_->fail(param, fmt::format("and {} both say what the answer must be: give one of them",
                                     grammar_->param));
    return;
  }
  grammar_ = AnswerGrammar{.source = std::move(source), .param = std::string(param)};
}

// A schema, or a string with its text.
void Reader::schema(Fields* owner, std::string_view name, std::string_view param) {
  const Json* value = owner->any(name);
  if (value == nullptr) return;
  text::GrammarSource source{.kind = Kind::kJsonSchema, .text = {}};
  if (const auto* text = value->get_ptr<const std::string*>()) {
    source.text = *text;
  } else if (value->is_object() || value->is_boolean()) {
    source.text = raw_json(body_, pointer_of(owner->path_of(name))).value_or("");
  } else {
    owner->fail(name, "must be a JSON schema");
    return;
  }
  set(std::move(source), param);
}

void Reader::text(Fields* owner, std::string_view name, Kind kind) {
  auto text = owner->text(name);
  if (text) set({.kind = kind, .text = std::move(*text)}, owner->path_of(name));
}

void Reader::any_grammar(Fields* owner, std::string_view name) {
  auto text = owner->text(name);
  if (!text || text->empty()) return;  // empty is llama.cpp's way to say none
  const bool is_gbnf = text->find("::=") != std::string::npos;
  set({.kind = is_gbnf ? Kind::kGbnf : Kind::kLark, .text = std::move(*text)},
      owner->path_of(name));
}

void Reader::choice(Fields* owner, std::string_view name) {
  const Json* list = owner->array(name);
  if (list == nullptr) return;
  std::vector<std::string> choices;
  for (const Json& choice : *list) {
    const auto* text = choice.get_ptr<const std::string*>();
    if (text != nullptr && !text->empty()) choices.push_back(*text);
  }
  if (choices.size() != list->size() || choices.empty() || choices.size() > kChoicesOfTextMax) {
    owner->fail(name, fmt::format("must be a list of 1 to {} strings that are not empty",
                                  kChoicesOfTextMax));
    return;
  }
  set(text::choice_grammar(choices), owner->path_of(name));
}

// {"name", "schema", "strict", "description"}: a schema is enforced with or without `strict`.
void Reader::named_schema(Fields* part, std::string_view param) {
  (void)part->text("name");  // names the schema to the client
  (void)part->text("description");
  (void)part->boolean("strict");
  if (part->any("schema") == nullptr) part->fail("schema", "must be a JSON schema");
  schema(part, "schema", param);
}

void Reader::json_schema(Fields* format) {
  const Json* value = format->object("json_schema");
  if (value == nullptr) {
    format->fail("json_schema", "must be an object");
    return;
  }
  Fields part(*value, format->path_of("json_schema"));
  named_schema(&part, "response_format");
  finish(&part);
}

std::optional<std::string> Reader::type_of(Fields* format) {
  auto type = format->choice("type", {"text", "json_object", "json_schema"});
  if (!type) format->fail("type", "must be one of: text, json_object, json_schema");
  return type;
}

void Reader::response_format() {
  const Json* value = fields_->object("response_format");
  if (value == nullptr) return;
  Fields format(*value, "response_format");
  const auto type = type_of(&format);
  if (type == "json_schema") json_schema(&format);
  if (type == "json_object") {
    // llama.cpp's clients may give a schema here.
    if (format.any("schema") != nullptr) {
      schema(&format, "schema", "response_format");
    } else {
      set(text::json_object_grammar(), "response_format");
    }
  }
  finish(&format);
}

void Reader::responses_format() {
  const Json* value = fields_->object("format");
  if (value == nullptr) return;
  const std::string path = fields_->path_of("format");
  Fields format(*value, path);
  const auto type = type_of(&format);
  if (type == "json_schema") named_schema(&format, path);
  if (type == "json_object") set(text::json_object_grammar(), path);
  finish(&format);
}

void Reader::local_fields() {
  schema(fields_, "guided_json", "guided_json");
  schema(fields_, "json_schema", "json_schema");
  text(fields_, "guided_regex", Kind::kRegex);
  choice(fields_, "guided_choice");
  any_grammar(fields_, "guided_grammar");
  any_grammar(fields_, "grammar");
  fields_->refuse("guided_whitespace_pattern", "is not served: JSON has \", \" and \": \" only");
  fields_->refuse("guided_decoding_backend", "is not served: there is one way only");
}

void Reader::structured_outputs() {
  const Json* value = fields_->object("structured_outputs");
  if (value == nullptr) return;
  Fields outputs(*value, "structured_outputs");
  schema(&outputs, "json", "structured_outputs.json");
  text(&outputs, "regex", Kind::kRegex);
  choice(&outputs, "choice");
  any_grammar(&outputs, "grammar");
  if (outputs.boolean("json_object").value_or(false)) {
    set(text::json_object_grammar(), "structured_outputs.json_object");
  }
  outputs.refuse("structural_tag", "is not served; use grammar");
  outputs.refuse("whitespace_pattern", "is not served: JSON has \", \" and \": \" only");
  (void)outputs.boolean("disable_any_whitespace");  // it is as if it were true
  (void)outputs.boolean("disable_fallback");        // there is none
  outputs.refuse_unless("disable_additional_properties", {false},
                        "is not served: say additionalProperties in the schema");
  finish(&outputs);
}

// "json", a schema, or "" for none.
void Reader::ollama_format() {
  const Json* value = fields_->any("format");
  if (value == nullptr || *value == Json("")) return;
  if (*value == "json") return set(text::json_object_grammar(), "format");
  if (!value->is_object()) {
    fields_->fail("format", "must be \"json\" or a JSON schema");
    return;
  }
  schema(fields_, "format", "format");
}

// {"type": "json_schema", "schema": ...}
void Reader::anthropic_format(Fields* owner, std::string_view name) {
  const Json* value = owner->object(name);
  if (value == nullptr) return;
  Fields format(*value, owner->path_of(name));
  if (!format.choice("type", {"json_schema"})) format.fail("type", "must be json_schema");
  if (format.any("schema") == nullptr) format.fail("schema", "must be a JSON schema");
  schema(&format, "schema", owner->path_of(name));
  finish(&format);
}

}  // namespace

std::optional<AnswerGrammar> read_openai_format(Fields* fields, std::string_view body) {
  Reader reader(fields, body);
  reader.response_format();
  reader.local_fields();
  reader.structured_outputs();
  return std::move(reader).grammar();
}

std::optional<AnswerGrammar> read_responses_format(Fields* fields, std::string_view body) {
  Reader reader(fields, body);
  reader.responses_format();
  return std::move(reader).grammar();
}

std::optional<AnswerGrammar> read_ollama_format(Fields* fields, std::string_view body) {
  Reader reader(fields, body);
  reader.ollama_format();
  return std::move(reader).grammar();
}

std::optional<AnswerGrammar> read_anthropic_format(Fields* fields, std::string_view body) {
  Reader reader(fields, body);
  reader.anthropic_format(fields, "output_format");
  if (const Json* value = fields->object("output_config")) {
    Fields config(*value, "output_config");
    reader.anthropic_format(&config, "format");
    if (auto error = config.finish()) fields->fail(std::move(*error));
  }
  return std::move(reader).grammar();
}

}  // namespace shoal::server
