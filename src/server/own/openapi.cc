#include "server/own/openapi.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace shoal::server {
namespace {

using Json = nlohmann::ordered_json;

// What requests are made of.
constexpr std::string_view kSchemas = R"json({
  "Error": {"type": "object", "properties": {"error": {"type": "object", "properties": {
    "message": {"type": "string"}, "type": {"type": "string"},
    "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}},
  "AnthropicError": {"type": "object", "properties": {"type": {"const": "error"},
    "error": {"type": "object", "properties": {
      "type": {"type": "string"}, "message": {"type": "string"}}}}},
  "OllamaError": {"type": "object", "properties": {"error": {"type": "string"}}},
  "Message": {"type": "object", "required": ["role"], "properties": {
    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
    "content": {"oneOf": [{"type": ["string", "null"]}, {"type": "array", "items": {
      "type": "object", "required": ["type", "text"],
      "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]},
    "name": {"type": "string"}, "reasoning_content": {"type": "string"},
    "tool_calls": {"type": "array"}, "tool_call_id": {"type": "string"}}},
  "Tool": {"type": "object", "required": ["type", "function"], "properties": {
    "type": {"const": "function"}, "function": {"type": "object", "required": ["name"],
      "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"},
        "description": {"type": "string"}, "parameters": {"type": "object"},
        "strict": {"type": "boolean", "default": false}}}}},
  "ToolChoice": {"oneOf": [{"enum": ["auto", "none", "required"]}, {"type": "object",
    "required": ["type", "function"], "properties": {"type": {"const": "function"},
      "function": {"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}}}}}]},
  "Generation": {"type": "object", "required": ["model"], "properties": {
    "model": {"type": "string"},
    "max_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2, "default": 1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 1},
    "top_k": {"type": "integer", "minimum": -1},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "minimum": 0.01, "maximum": 10},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "seed": {"type": "integer"},
    "n": {"type": "integer", "minimum": 1, "maximum": 64, "default": 1},
    "stop": {"oneOf": [{"type": "string"},
      {"type": "array", "maxItems": 64, "items": {"type": "string"}}]},
    "logit_bias": {"type": "object", "additionalProperties":
      {"type": "number", "minimum": -100, "maximum": 100}},
    "stream": {"type": "boolean", "default": false},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "ignore_eos": {"type": "boolean"},
    "response_format": {"type": "object", "required": ["type"], "properties": {
      "type": {"enum": ["text", "json_object", "json_schema"]},
      "schema": {"$ref": "#/components/schemas/JsonSchema"},
      "json_schema": {"type": "object", "required": ["schema"], "properties": {
        "name": {"type": "string"}, "description": {"type": "string"},
        "strict": {"type": "boolean"},
        "schema": {"$ref": "#/components/schemas/JsonSchema"}}}}},
    "guided_json": {"$ref": "#/components/schemas/JsonSchema"},
    "guided_regex": {"type": "string"},
    "guided_choice": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    "guided_grammar": {"type": "string"},
    "grammar": {"type": "string"},
    "json_schema": {"$ref": "#/components/schemas/JsonSchema"},
    "structured_outputs": {"type": "object", "properties": {
      "json": {"$ref": "#/components/schemas/JsonSchema"}, "regex": {"type": "string"},
      "choice": {"type": "array", "minItems": 1, "items": {"type": "string"}},
      "grammar": {"type": "string"}, "json_object": {"type": "boolean"}}},
    "user": {"type": "string"}}},
  "JsonSchema": {"type": ["object", "boolean", "string"],
    "description": "A JSON schema, where it is a string as its text"},
  "ChatRequest": {"allOf": [{"$ref": "#/components/schemas/Generation"}, {"type": "object",
    "required": ["messages"], "properties": {
      "messages": {"type": "array", "minItems": 1,
        "items": {"$ref": "#/components/schemas/Message"}},
      "max_completion_tokens": {"type": "integer", "minimum": 1},
      "logprobs": {"type": "boolean"},
      "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
      "tools": {"type": "array", "maxItems": 256, "items": {"$ref": "#/components/schemas/Tool"}},
      "tool_choice": {"$ref": "#/components/schemas/ToolChoice"},
      "parallel_tool_calls": {"type": "boolean", "default": true},
      "reasoning_effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]},
      "chat_template_kwargs": {"type": "object"},
      "metadata": {"type": "object", "additionalProperties": {"type": "string"}}}}]},
  "CompletionRequest": {"allOf": [{"$ref": "#/components/schemas/Generation"}, {"type": "object",
    "required": ["prompt"], "properties": {
      "prompt": {"oneOf": [{"type": "string"}, {"type": "array"}]},
      "echo": {"type": "boolean"},
      "logprobs": {"type": "integer", "minimum": 0, "maximum": 20}}}]},
  "ResponsesRequest": {"type": "object", "required": ["model", "input"], "properties": {
    "model": {"type": "string"},
    "input": {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1}]},
    "instructions": {"type": "string"},
    "max_output_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2, "default": 1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 1},
    "include": {"type": "array", "items": {
      "enum": ["message.output_text.logprobs", "reasoning.encrypted_content"]}},
    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    "text": {"type": "object", "properties": {"verbosity": {"const": "medium"},
      "format": {"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "name": {"type": "string"}, "description": {"type": "string"},
        "strict": {"type": "boolean"},
        "schema": {"$ref": "#/components/schemas/JsonSchema"}}}}},
    "reasoning": {"type": "object", "properties": {
      "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]},
      "summary": {"const": "auto"}}},
    "tools": {"type": "array", "maxItems": 256, "items": {
      "type": "object", "required": ["type", "name"], "properties": {
        "type": {"const": "function"},
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"},
        "description": {"type": "string"}, "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"], "default": false}}}},
    "tool_choice": {"oneOf": [{"enum": ["auto", "none", "required"]},
      {"type": "object", "required": ["type", "name"], "properties": {
        "type": {"const": "function"}, "name": {"type": "string"}}},
      {"type": "object", "required": ["type", "mode", "tools"], "properties": {
        "type": {"const": "allowed_tools"}, "mode": {"enum": ["auto", "required"]},
        "tools": {"type": "array", "minItems": 1, "items": {
          "type": "object", "required": ["type", "name"], "properties": {
            "type": {"const": "function"}, "name": {"type": "string"}}}}}}]},
    "parallel_tool_calls": {"type": "boolean", "default": true},
    "stream": {"type": "boolean", "default": false},
    "store": {"const": false},
    "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
    "user": {"type": "string"}}},
  "EmbeddingsRequest": {"type": "object", "required": ["model", "input"], "properties": {
    "model": {"type": "string"},
    "input": {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 2048}]},
    "encoding_format": {"enum": ["float", "base64"], "default": "float"},
    "dimensions": {"type": "integer", "minimum": 1},
    "user": {"type": "string"}}},
  "MessagesRequest": {"type": "object", "required": ["model", "max_tokens", "messages"],
    "properties": {
      "model": {"type": "string"}, "max_tokens": {"type": "integer", "minimum": 1},
      "messages": {"type": "array", "minItems": 1}, "system": {"type": ["string", "array"]},
      "temperature": {"type": "number", "minimum": 0, "maximum": 1},
      "top_p": {"type": "number"}, "top_k": {"type": "integer"},
      "stop_sequences": {"type": "array", "items": {"type": "string"}},
      "tools": {"type": "array", "maxItems": 256}, "tool_choice": {"type": "object"},
      "thinking": {"type": "object"},
      "stream": {"type": "boolean"}, "metadata": {"type": "object"},
      "output_format": {"$ref": "#/components/schemas/OutputFormat"},
      "output_config": {"type": "object", "properties": {
        "effort": {"enum": ["low", "medium", "high", "xhigh", "max"], "default": "high"},
        "format": {"$ref": "#/components/schemas/OutputFormat"}}}}},
  "OutputFormat": {"type": "object", "required": ["type", "schema"], "properties": {
    "type": {"const": "json_schema"}, "schema": {"$ref": "#/components/schemas/JsonSchema"}}},
  "CountRequest": {"type": "object", "required": ["model", "messages"], "properties": {
    "model": {"type": "string"}, "messages": {"type": "array"},
    "system": {"type": ["string", "array"]}, "tools": {"type": "array"},
    "tool_choice": {"type": "object"}, "thinking": {"type": "object"}}},
  "OllamaChat": {"type": "object", "required": ["model"], "properties": {
    "model": {"type": "string"}, "messages": {"type": "array"},
    "tools": {"type": "array", "items": {"$ref": "#/components/schemas/Tool"}},
    "think": {"type": ["boolean", "string"]},
    "stream": {"type": "boolean", "default": true}, "options": {"type": "object"},
    "keep_alive": {"type": ["string", "number"]}, "format": {"type": ["string", "object"]}}},
  "OllamaGenerate": {"type": "object", "required": ["model"], "properties": {
    "model": {"type": "string"}, "prompt": {"type": "string"}, "system": {"type": "string"},
    "raw": {"type": "boolean"}, "stream": {"type": "boolean", "default": true},
    "think": {"type": ["boolean", "string"]},
    "options": {"type": "object"}, "keep_alive": {"type": ["string", "number"]},
    "format": {"type": ["string", "object"]}}},
  "OllamaEmbed": {"type": "object", "required": ["model"], "properties": {
    "model": {"type": "string"},
    "input": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "truncate": {"type": "boolean", "default": true},
    "dimensions": {"type": "integer", "minimum": 1},
    "options": {"type": "object"}, "keep_alive": {"type": ["string", "number"]}}},
  "OllamaEmbeddings": {"type": "object", "required": ["model"], "properties": {
    "model": {"type": "string"}, "prompt": {"type": "string"},
    "options": {"type": "object"}, "keep_alive": {"type": ["string", "number"]}}},
  "OllamaShow": {"type": "object", "required": ["model"],
    "properties": {"model": {"type": "string"}}},
  "Tokenize": {"type": "object", "properties": {
    "prompt": {"type": "string"}, "add_special_tokens": {"type": "boolean", "default": true},
    "messages": {"type": "array"}, "add_generation_prompt": {"type": "boolean", "default": true}}},
  "Detokenize": {"type": "object", "required": ["tokens"],
    "properties": {"tokens": {"type": "array", "items": {"type": "integer"}}}}
})json";

struct Operation {
  std::string_view method;
  std::string_view path;
  std::string_view summary;
  std::string_view request;  // a schema; empty: no body
};

constexpr Operation kOperations[] = {
    {"get", "/v1/models", "The models that are served", ""},
    {"get", "/v1/models/{id}", "One of them", ""},
    {"post", "/v1/chat/completions", "Answer a conversation", "ChatRequest"},
    {"post", "/v1/completions", "Continue a text", "CompletionRequest"},
    {"post", "/v1/responses", "Answer a conversation (Responses)", "ResponsesRequest"},
    {"post", "/v1/embeddings", "Texts as vectors", "EmbeddingsRequest"},
    {"post", "/v1/messages", "Answer a conversation (Anthropic)", "MessagesRequest"},
    {"post", "/v1/messages/count_tokens", "Count a prompt's tokens (Anthropic)", "CountRequest"},
    {"post", "/api/chat", "Answer a conversation (Ollama)", "OllamaChat"},
    {"post", "/api/generate", "Answer a prompt (Ollama)", "OllamaGenerate"},
    {"post", "/api/embed", "Texts as vectors (Ollama)", "OllamaEmbed"},
    {"post", "/api/embeddings", "A text as a vector (Ollama, older)", "OllamaEmbeddings"},
    {"get", "/", "Whether this server is there (Ollama)", ""},
    {"get", "/api/tags", "The models that are served (Ollama)", ""},
    {"get", "/api/ps", "The models that are loaded (Ollama)", ""},
    {"post", "/api/show", "What a model is (Ollama)", "OllamaShow"},
    {"get", "/api/version", "This program's version (Ollama)", ""},
    {"get", "/health", "Whether the model answers", ""},
    {"get", "/ready", "The same", ""},
    {"get", "/metrics", "Counters in Prometheus's text format", ""},
    {"get", "/version", "This program's version", ""},
    {"get", "/openapi.json", "This description", ""},
    {"post", "/tokenize", "A text or a conversation as tokens", "Tokenize"},
    {"post", "/detokenize", "Tokens as text", "Detokenize"},
};

// How errors at a path are written.
std::string error_schema(std::string_view path) {
  if (path.starts_with("/v1/messages")) return "#/components/schemas/AnthropicError";
  return path.starts_with("/api/") ? "#/components/schemas/OllamaError"
                                   : "#/components/schemas/Error";
}

Json describe(const Operation& operation) {
  const Json error = {
      {"description", "What is wrong"},
      {"content", {{"application/json", {{"schema", {{"$ref", error_schema(operation.path)}}}}}}}};
  Json json = {{"summary", operation.summary},
               {"responses", {{"200", {{"description", "The answer"}}}, {"default", error}}}};
  if (operation.path.ends_with("{id}")) {
    json["parameters"] = Json::array(
        {{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  if (!operation.request.empty()) {
    const std::string schema = "#/components/schemas/" + std::string(operation.request);
    json["requestBody"] = {{"required", true},
                           {"content", {{"application/json", {{"schema", {{"$ref", schema}}}}}}}};
  }
  return json;
}

}  // namespace

std::string openapi_json(const std::string& version) {
  Json paths = Json::object();
  for (const Operation& operation : kOperations) {
    paths[std::string(operation.path)][std::string(operation.method)] = describe(operation);
  }
  const Json json = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "Shoal"}, {"version", version}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", Json::parse(kSchemas, nullptr, false)},
        {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", Json::array({Json::object({{"key", Json::array()}}), Json::object()})}};
  return json.dump();
}

}  // namespace shoal::server
