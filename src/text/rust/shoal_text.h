/* The C interface of the Rust part of src/text: tokenizers, chat templates and grammars.
 *
 * Every function that can fail returns a SHOAL_TEXT_* code. On kOk the outputs are set and `error`
 * is not; otherwise `error` holds a message and the outputs are untouched. A panic behind the
 * boundary is caught and becomes SHOAL_TEXT_BUG.
 *
 * Ownership: a ShoalText is borrowed (from the caller in arguments, from the object in results).
 * A ShoalBuffer or ShoalIds is owned by the caller and goes back through its _free function once.
 * Thread rule: objects are immutable; any function but _free may be called from many threads. A
 * ShoalConstraint alone has a state, and one thread at a time.
 */
#pragma once

/* C has no `using`, and its constants are named so. */
/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming,modernize-deprecated-headers) */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  SHOAL_TEXT_OK = 0,
  SHOAL_TEXT_ERROR = 1,   /* bad input: the message says what */
  SHOAL_TEXT_REFUSED = 2, /* the chat template's own raise_exception: the message is its text */
  SHOAL_TEXT_BUG = 3,     /* a panic */
};

/* UTF-8 text or raw bytes; data may be null when size is 0. */
typedef struct ShoalText {
  const char* data;
  size_t size;
} ShoalText;

typedef struct ShoalBuffer {
  char* data;
  size_t size;
} ShoalBuffer;

typedef struct ShoalIds {
  int32_t* data;
  size_t size;
} ShoalIds;

typedef struct ShoalTokenizer ShoalTokenizer;
typedef struct ShoalTemplate ShoalTemplate;
typedef struct ShoalGrammarCompiler ShoalGrammarCompiler;
typedef struct ShoalGrammar ShoalGrammar;
typedef struct ShoalConstraint ShoalConstraint;

/* In the structs below an id of -1 and a switch of -1 mean "not given", and so does a text whose
 * data is null. */
typedef struct ShoalTokenizerOptions {
  ShoalText bos_token;
  ShoalText eos_token;
  ShoalText unk_token;
  ShoalText pad_token;
  int8_t add_bos;
  int8_t add_eos;
  const int64_t* end_of_generation;
  size_t end_of_generation_count;
} ShoalTokenizerOptions;

typedef struct ShoalVocabulary {
  ShoalText model;
  ShoalText pre;
  const ShoalText* tokens;
  size_t token_count;
  const float* scores;  /* token_count of them, or null */
  const int32_t* types; /* token_count of them, or null */
  const ShoalText* merges;
  size_t merge_count;
  int64_t bos;
  int64_t eos;
  int64_t eot;
  int64_t eom;
  int64_t unk;
  int64_t pad;
  int8_t add_bos;
  int8_t add_eos;
  int8_t add_space_prefix;
} ShoalVocabulary;

typedef struct ShoalTokenizerInfo {
  int32_t vocabulary_size;
  int32_t leading_spaces;
  int32_t bos;
  int32_t eos;
  int32_t eot;
  int32_t unk;
  int32_t pad;
  int8_t add_bos;
  int8_t add_eos;
  const int32_t* end_of_generation; /* borrowed from the tokenizer */
  size_t end_of_generation_count;
} ShoalTokenizerInfo;

typedef struct ShoalTemplateTokens {
  ShoalText bos_token;
  ShoalText eos_token;
  ShoalText unk_token;
  ShoalText pad_token;
} ShoalTemplateTokens;

enum {
  SHOAL_GRAMMAR_JSON_SCHEMA = 0,
  SHOAL_GRAMMAR_REGEX = 1,
  SHOAL_GRAMMAR_LARK = 2,
  SHOAL_GRAMMAR_GBNF = 3,
};

typedef struct ShoalGrammarPart {
  ShoalText name;
  int32_t kind; /* SHOAL_GRAMMAR_* */
  ShoalText text;
} ShoalGrammarPart;

/* Text in which a trigger does not count. */
typedef struct ShoalQuietText {
  ShoalText open; /* empty: none but at the start */
  const ShoalText* closes;
  size_t close_count;
  int is_anywhere;
  int starts_inside;
} ShoalQuietText;

typedef struct ShoalGrammarSource {
  int32_t kind; /* SHOAL_GRAMMAR_* */
  ShoalText text;
  const ShoalGrammarPart* parts;
  size_t part_count;
  ShoalText trigger; /* empty: none */
  ShoalQuietText quiet;
  int repeats;
} ShoalGrammarSource;

/* One bit for each token id, from the lowest bit of the first word on; no words: all are set. */
typedef struct ShoalMask {
  const uint32_t* words;
  size_t count;
} ShoalMask;

/* What encode puts around the text. */
enum {
  SHOAL_TEXT_ENDS_NONE = 0,
  SHOAL_TEXT_ENDS_BOTH = 1,  /* BOS and EOS as the model wants them */
  SHOAL_TEXT_ENDS_START = 2, /* BOS only */
};

void shoal_buffer_free(ShoalBuffer buffer);
void shoal_ids_free(ShoalIds ids);

int shoal_tokenizer_from_json(ShoalText json, const ShoalTokenizerOptions* options,
                              ShoalTokenizer** tokenizer, ShoalBuffer* error);
int shoal_tokenizer_from_vocabulary(const ShoalVocabulary* vocabulary, ShoalTokenizer** tokenizer,
                                    ShoalBuffer* error);
void shoal_tokenizer_free(ShoalTokenizer* tokenizer);

ShoalTokenizerInfo shoal_tokenizer_info(const ShoalTokenizer* tokenizer);
/* An id outside of the vocabulary gives an empty text and the kind 0. */
ShoalText shoal_tokenizer_token_text(const ShoalTokenizer* tokenizer, int32_t id);
ShoalText shoal_tokenizer_token_bytes(const ShoalTokenizer* tokenizer, int32_t id);
int32_t shoal_tokenizer_token_kind(const ShoalTokenizer* tokenizer, int32_t id);
/* The id, or -1. */
int32_t shoal_tokenizer_find(const ShoalTokenizer* tokenizer, ShoalText token_text);
int shoal_tokenizer_encode(const ShoalTokenizer* tokenizer, ShoalText text, int parse_special,
                           int ends, ShoalIds* ids, ShoalBuffer* error);

int shoal_template_parse(ShoalText source, const ShoalTemplateTokens* tokens,
                         ShoalTemplate** result, ShoalBuffer* error);
void shoal_template_free(ShoalTemplate* chat_template);
/* now: seconds since 1970, for strftime_now. */
int shoal_template_render(const ShoalTemplate* chat_template, ShoalText request_json, int64_t now,
                          ShoalBuffer* text, ShoalBuffer* error);

/* grammar.h says what these do. The compiler, a grammar and a constraint hold what they need of one
 * another and of the tokenizer: they may be freed in any order. */
int shoal_grammar_compiler_new(const ShoalTokenizer* tokenizer, ShoalGrammarCompiler** compiler,
                               ShoalBuffer* error);
void shoal_grammar_compiler_free(ShoalGrammarCompiler* compiler);
int shoal_grammar_compile(const ShoalGrammarCompiler* compiler, const ShoalGrammarSource* source,
                          ShoalGrammar** grammar, ShoalBuffer* error);
void shoal_grammar_free(ShoalGrammar* grammar);
int shoal_grammar_start(const ShoalGrammar* grammar, ShoalConstraint** constraint,
                        ShoalBuffer* error);
void shoal_constraint_free(ShoalConstraint* constraint);
/* The mask is the constraint's, until its next call. */
int shoal_constraint_allowed(ShoalConstraint* constraint, ShoalMask* mask, ShoalBuffer* error);
int shoal_constraint_accept(ShoalConstraint* constraint, int32_t id, int* is_complete,
                            ShoalBuffer* error);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming,modernize-deprecated-headers) */
