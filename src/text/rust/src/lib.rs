//! Tokenizers, chat templates and grammars behind a small C interface (`shoal_text.h`).
//!
//! The work is done by the crates that models are published against: `tokenizers` splits and
//! merges, `minijinja` renders, `llguidance` says which tokens a grammar allows. What is here joins
//! them: building a tokenizer from a tokenizer.json or from the vocabulary of a model file, giving
//! templates the Python manners they were written for, and bounding what comes from outside.

mod bounded;
mod byte_level;
mod error;
mod ffi;
mod grammar;
mod json;
mod messages;
mod pipeline;
mod pre_tokenizers;
mod python;
mod special;
mod spm;
mod table;
mod template;
mod template_functions;
mod template_source;
mod unigram;
mod vocabulary;
