//! ShoalTokenizer: the chain from text to ids, the same for every source of a tokenizer.
//!
//! Added tokens are cut out first, then the rest is normalized, cut by the pre-tokenizer and merged
//! by the model: the order of the tokenizers crate. Added tokens are kept twice, with the control
//! tokens and without, so that text from a user can be encoded in which a control token is only its
//! characters.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::{BpeTrainer, BPE};
use tokenizers::{
    AddedToken, AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizer, PreTokenizerWrapper, Token,
};

use crate::error::{Result, TextError};
use crate::special::Special;
use crate::spm::Spm;
use crate::table::TokenTable;
use crate::unigram::ByteUnigram;

pub enum Merger {
    Bpe(Box<BPE>),
    Spm(Spm),
    Unigram(ByteUnigram),
}

impl Merger {
    fn tokenize(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        let ids = match self {
            Merger::Bpe(model) => return model.tokenize(text),
            Merger::Spm(model) => model.tokenize(text),
            Merger::Unigram(model) => model.tokenize(text)?,
        };
        // Only ids are asked for downstream; text and offsets stay empty.
        Ok(ids
            .into_iter()
            .map(|id| Token::new(id, String::new(), (0, 0)))
            .collect())
    }
}

/// The parts that a tokenizer is put together from.
pub struct Parts {
    pub table: TokenTable,
    pub added: Vec<AddedToken>,
    pub normalizer: Option<NormalizerWrapper>,
    pub pre_tokenizer: Option<PreTokenizerWrapper>,
    pub merger: Merger,
    pub special: Special,
    /// Spaces that the tokenizer itself puts before a text, which decoding takes away.
    pub leading_spaces: usize,
}

/// What goes around a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    None,
    Both,
    Start,
}

pub struct ShoalTokenizer {
    pub table: TokenTable,
    pub special: Special,
    pub leading_spaces: usize,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    merger: Merger,
    all_added: AddedVocabulary,
    plain_added: AddedVocabulary,
}

impl ShoalTokenizer {
    pub fn new(parts: Parts) -> Self {
        let collect = |with_control: bool| {
            let tokens: Vec<AddedToken> = parts
                .added
                .iter()
                .filter(|token| with_control || !token.special)
                .cloned()
                .collect();
            let mut added = AddedVocabulary::new();
            added.add_tokens(&tokens, &IdSource(&parts.table), parts.normalizer.as_ref());
            added
        };
        ShoalTokenizer {
            all_added: collect(true),
            plain_added: collect(false),
            table: parts.table,
            special: parts.special,
            leading_spaces: parts.leading_spaces,
            normalizer: parts.normalizer,
            pre_tokenizer: parts.pre_tokenizer,
            merger: parts.merger,
        }
    }

    pub fn encode(&self, text: &str, parse_special: bool, ends: Ends) -> Result<Vec<i32>> {
        let core = self.encode_text(text, parse_special)?;
        let mut ids = Vec::with_capacity(core.len() + 2);
        if ends != Ends::None && !self.starts_with_bos(&core) {
            ids.extend_from_slice(&self.special.prefix);
        }
        ids.extend(core);
        if ends == Ends::Both {
            ids.extend_from_slice(&self.special.suffix);
        }
        Ok(ids)
    }

    /// The text brings the BOS that would be added.
    fn starts_with_bos(&self, ids: &[i32]) -> bool {
        self.special.bos.is_some_and(|bos| {
            let bos = Some(&(bos as i32));
            self.special.prefix.first() == bos && ids.first() == bos
        })
    }

    fn encode_text(&self, text: &str, parse_special: bool) -> Result<Vec<i32>> {
        let failed = |e: tokenizers::Error| TextError::input(format!("cannot tokenize: {e}"));
        let added = if parse_special {
            &self.all_added
        } else {
            &self.plain_added
        };
        let mut pieces = added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        pieces
            .tokenize(|piece| self.merger.tokenize(piece.get()))
            .map_err(failed)?;
        let mut ids = Vec::new();
        for (_, _, tokens) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            ids.extend(tokens.iter().flatten().map(|token| token.id as i32));
        }
        Ok(ids)
    }
}

/// Gives the crate's added vocabulary the ids of our table: the added tokens are not in the merging
/// model, so that it cannot make them.
struct IdSource<'a>(&'a TokenTable);

impl Model for IdSource<'_> {
    type Trainer = BpeTrainer;

    fn tokenize(&self, _: &str) -> tokenizers::Result<Vec<Token>> {
        Ok(Vec::new())
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.find(token)
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        let text = i32::try_from(id).map_or(&[][..], |id| self.0.text(id));
        std::str::from_utf8(text)
            .ok()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        HashMap::new()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.len()
    }
    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}
