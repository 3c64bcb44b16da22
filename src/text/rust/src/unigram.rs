//! A Unigram model whose byte tokens cannot be typed.
//!
//! The crate puts every vocabulary entry into its search, `<0x0A>` too, so that the six characters
//! `<0x0A>` in a text would become the byte 10. SentencePiece keeps byte tokens out of the search.
//! Here the crate gets these entries under a spelling that no sane text has, with its byte fallback
//! off, and unknown stretches are spelled in bytes afterwards.

use tokenizers::models::unigram::Unigram;
use tokenizers::Model;

use crate::byte_level::{fallback_byte, ByteIds};
use crate::error::{Result, TextError};

pub struct ByteUnigram {
    model: Unigram,
    unk: Option<u32>,
    bytes: ByteIds,
}

impl ByteUnigram {
    pub fn new(
        mut vocabulary: Vec<(String, f64)>,
        unk: Option<usize>,
        byte_fallback: bool,
    ) -> Result<Self> {
        let mut bytes = ByteIds::default();
        if byte_fallback {
            for (id, (text, _)) in vocabulary.iter_mut().enumerate() {
                if let Some(byte) = fallback_byte(text) {
                    bytes.set(byte, id as u32);
                    *text = format!("\u{10FFFF}{text}\u{10FFFF}");
                }
            }
        }
        let model = Unigram::from(vocabulary, unk, false)
            .map_err(|e| TextError::input(format!("model.vocab: {e}")))?;
        Ok(ByteUnigram {
            model,
            unk: unk.map(|id| id as u32),
            bytes,
        })
    }

    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>> {
        let tokens = self
            .model
            .tokenize(text)
            .map_err(|e| TextError::input(e.to_string()))?;
        let mut ids = Vec::with_capacity(tokens.len());
        for token in tokens {
            let is_unknown = Some(token.id) == self.unk;
            if !(is_unknown && self.bytes.spell(&token.value, &mut ids)) {
                ids.push(token.id);
            }
        }
        Ok(ids)
    }
}
