//! TokenTrie: a tokenizer's vocabulary as the grammar engine walks it.

use std::sync::Arc;

use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv, INVALID_TOKEN};

use crate::error::{Result, TextError};
use crate::pipeline::{Ends, ShoalTokenizer};
use crate::table::{Kind, TokenTable};

/// A longer token is never offered: the trie holds 1,024 bytes of depth at most.
const TOKEN_BYTES_MAX: usize = 512;

/// Texts that a tokenizer must give back as they are, for its tokens to be forced.
const PROBES: &[&str] = &["{\"name\": \"value\"}", "word", " word", "\n\n", "é漢, 1"];

/// How a text in the middle of an answer is tokenized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As a text of its own.
    Alone,
    /// Behind a line break, whose tokens are taken away: SentencePiece puts a space before the
    /// first word of a text.
    AfterLineBreak,
    /// The longest tokens that fit: not what the model was trained on, so nothing is forced.
    Greedy,
}

pub struct TokenTrie {
    trie: TokTrie,
    tokenizer: Arc<ShoalTokenizer>,
    form: Form,
}

impl TokenTrie {
    pub fn build(tokenizer: Arc<ShoalTokenizer>) -> Result<TokEnv> {
        let table = &tokenizer.table;
        let count = u32::try_from(table.len())
            .ok()
            .filter(|&count| count < 1 << 22);
        let count = count.ok_or_else(|| {
            TextError::input("the vocabulary has too many tokens for constrained answers")
        })?;
        let words: Vec<Vec<u8>> = (0..count as i32).map(|id| word(table, id)).collect();
        let end = tokenizer.special.end_of_generation.first();
        let info = TokRxInfo::new(count, end.map_or(INVALID_TOKEN, |&id| id as TokenId));
        let mut built = TokenTrie {
            trie: TokTrie::from(&info, &words),
            tokenizer,
            form: Form::Greedy,
        };
        let fits = |form: &Form| {
            PROBES
                .iter()
                .all(|text| built.encode(text, *form).is_some())
        };
        built.form = [Form::Alone, Form::AfterLineBreak]
            .into_iter()
            .find(fits)
            .unwrap_or(Form::Greedy);
        Ok(Arc::new(built))
    }

    /// The tokens of a text, where they stand for just its bytes.
    fn encode(&self, text: &str, form: Form) -> Option<Vec<TokenId>> {
        let before = match form {
            Form::Alone => "",
            Form::AfterLineBreak => "\n",
            Form::Greedy => return None,
        };
        let ids = self
            .tokenizer
            .encode(&format!("{before}{text}"), false, Ends::None)
            .ok()?;
        let table = &self.tokenizer.table;
        // The tokenizer's own space is before the line break, if anywhere.
        let mut head = Vec::new();
        let mut skipped = 0;
        while !before.is_empty() && head.last() != Some(&b'\n') {
            head.extend_from_slice(table.bytes(*ids.get(skipped)?));
            skipped += 1;
        }
        let ids = &ids[skipped..];
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| table.bytes(id))
            .copied()
            .collect();
        (bytes == text.as_bytes()).then(|| ids.iter().map(|&id| id as TokenId).collect())
    }
}

impl TokenizerEnv for TokenTrie {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.encode(text, self.form)
                .unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.form != Form::Greedy
    }
}

/// The bytes by which the trie knows a token. A control token is behind a byte that no text has, so
/// that only its name in a grammar means it; a token without bytes is never offered.
fn word(table: &TokenTable, id: i32) -> Vec<u8> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    let bytes = match table.kind(id) {
        None => Vec::new(),
        Some(Kind::Control | Kind::Unknown | Kind::Unused) => {
            let text = table.text(id);
            if text.is_empty() {
                Vec::new()
            } else {
                [&[marker], text].concat()
            }
        }
        Some(Kind::Normal | Kind::UserDefined | Kind::Byte) => {
            let bytes = table.bytes(id);
            if bytes.first() == Some(&marker) {
                Vec::new()
            } else {
                bytes.to_vec()
            }
        }
    };
    if bytes.len() > TOKEN_BYTES_MAX {
        return Vec::new();
    }
    bytes
}
