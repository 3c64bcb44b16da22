//! TokenTable: what each id is: its spelling, its bytes, its kind.

use std::collections::HashMap;

use crate::error::{Result, TextError};

/// The values of `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

impl Kind {
    pub fn from_value(value: i32) -> Option<Kind> {
        Some(match value {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => return None,
        })
    }
}

/// Many short byte strings in one allocation.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}

pub struct TokenTable {
    texts: Strings,
    bytes: Strings,
    kinds: Vec<Kind>,
    by_text: HashMap<String, u32>,
}

impl TokenTable {
    /// `bytes_of` says which bytes a token of that spelling and kind stands for.
    pub fn build(
        tokens: &[String],
        kinds: Vec<Kind>,
        bytes_of: impl Fn(&str, Kind) -> Vec<u8>,
    ) -> Self {
        assert_eq!(tokens.len(), kinds.len());
        let mut table = TokenTable {
            texts: Strings::default(),
            bytes: Strings::default(),
            by_text: HashMap::with_capacity(tokens.len()),
            kinds,
        };
        for (id, text) in tokens.iter().enumerate() {
            table.texts.push(text.as_bytes());
            table.bytes.push(&bytes_of(text, table.kinds[id]));
            if !text.is_empty() {
                // Of tokens with one spelling the lowest id stands for it.
                table.by_text.entry(text.clone()).or_insert(id as u32);
            }
        }
        table
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    fn index(&self, id: i32) -> Option<usize> {
        usize::try_from(id).ok().filter(|&index| index < self.len())
    }

    pub fn text(&self, id: i32) -> &[u8] {
        self.index(id).map_or(&[], |index| self.texts.get(index))
    }

    pub fn bytes(&self, id: i32) -> &[u8] {
        self.index(id).map_or(&[], |index| self.bytes.get(index))
    }

    pub fn kind(&self, id: i32) -> Option<Kind> {
        self.index(id).map(|index| self.kinds[index])
    }

    pub fn find(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// The ids of a token that must be there, such as the configured BOS.
    pub fn require(&self, text: &str, what: &str) -> Result<u32> {
        self.find(text)
            .ok_or_else(|| TextError::input(format!("{what} \"{text}\" is not in the vocabulary")))
    }
}
