//! Grammars: which tokens an answer may go on with, by the crate `llguidance`.

mod compiler;
mod constraint;
mod ffi;
mod free_text;
mod gbnf;
mod lark;
mod schema;
mod token_trie;
