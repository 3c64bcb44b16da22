//! A tokenizer from the vocabulary of a model file (the `tokenizer.ggml.*` keys of GGUF).
//!
//! Lengths, ids and types have been checked by the caller (vocabulary.h); what needs the texts is
//! checked here. Messages name the key.

use ahash::{AHashMap, AHashSet};
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{AddedToken, NormalizerWrapper};

use crate::byte_level::{fallback_byte, ByteIds, ByteLevel};
use crate::error::{Result, TextError};
use crate::pipeline::{Merger, Parts, ShoalTokenizer};
use crate::pre_tokenizers;
use crate::special::Special;
use crate::spm::Spm;
use crate::table::{Kind, TokenTable};

/// SentencePiece's visible space.
const SPACE: &str = "▁";

pub struct Vocabulary<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<String>,
    pub kinds: Vec<Kind>,
    pub scores: &'a [f32],
    pub merges: Vec<&'a str>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

pub fn build(mut vocabulary: Vocabulary) -> Result<ShoalTokenizer> {
    if vocabulary.model == "llama" {
        fill_in_sentencepiece(&mut vocabulary);
    }
    let parts = match vocabulary.model {
        "gpt2" => byte_level_parts(&vocabulary)?,
        "llama" => sentencepiece_parts(&vocabulary)?,
        other => {
            return Err(TextError::input(format!(
                "tokenizer.ggml.model is \"{other}\", which is not supported; supported are gpt2 and llama"
            )))
        }
    };
    Ok(ShoalTokenizer::new(parts))
}

/// The kinds of a file that does not give them: everything is ordinary but the special ids and,
/// with SentencePiece, the tokens that are spelled like bytes.
pub fn default_kinds(model: &str, tokens: &[String], special: &[Option<u32>]) -> Vec<Kind> {
    let is_byte = |text: &str| model == "llama" && fallback_byte(text).is_some();
    let mut kinds: Vec<Kind> = tokens
        .iter()
        .map(|text| {
            if is_byte(text) {
                Kind::Byte
            } else {
                Kind::Normal
            }
        })
        .collect();
    for id in special.iter().flatten() {
        kinds[*id as usize] = Kind::Control;
    }
    kinds
}

/// SentencePiece's own numbering, for files that leave these keys out.
fn fill_in_sentencepiece(vocabulary: &mut Vocabulary) {
    let kinds = &vocabulary.kinds;
    let usual = |id: u32, kind: Kind| Some(id).filter(|&id| kinds.get(id as usize) == Some(&kind));
    vocabulary.unk = vocabulary.unk.or(usual(0, Kind::Unknown));
    vocabulary.bos = vocabulary.bos.or(usual(1, Kind::Control));
    vocabulary.eos = vocabulary.eos.or(usual(2, Kind::Control));
}

/// Control tokens are matched in the text as it is, and so are user-defined ones.
fn added_tokens(vocabulary: &Vocabulary) -> Vec<AddedToken> {
    let texts = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    texts
        .filter(|(text, _)| !text.is_empty())
        .filter_map(|(text, kind)| match kind {
            Kind::Control | Kind::Unknown => {
                Some(AddedToken::from(text.clone(), true).normalized(false))
            }
            Kind::UserDefined => Some(AddedToken::from(text.clone(), false).normalized(false)),
            _ => None,
        })
        .collect()
}

fn special(vocabulary: &Vocabulary, table: &TokenTable, add_bos: bool) -> Special {
    let mut special = Special {
        bos: vocabulary.bos,
        eos: vocabulary.eos,
        eot: vocabulary.eot,
        unk: vocabulary.unk,
        pad: vocabulary.pad,
        ..Special::default()
    };
    special.set_add_bos(Some(vocabulary.add_bos.unwrap_or(add_bos)));
    special.set_add_eos(Some(vocabulary.add_eos.unwrap_or(false)));
    let more: Vec<u32> = vocabulary.eom.into_iter().collect();
    special.find_ends(table, &more);
    special
}

fn byte_level_parts(vocabulary: &Vocabulary) -> Result<Parts> {
    let rules = pre_tokenizers::find(vocabulary.pre)?;
    let mut ids: AHashMap<String, u32> = AHashMap::with_capacity(vocabulary.tokens.len());
    let mut control: AHashSet<&str> = AHashSet::new();
    for (id, (text, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
        match kind {
            Kind::Control | Kind::Unknown => {
                control.insert(text);
            }
            _ => {
                ids.entry(text.clone()).or_insert(id as u32);
            }
        }
    }
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    for (rank, merge) in vocabulary.merges.iter().enumerate() {
        merges.extend(
            parse_merge(merge, &ids, &control)
                .map_err(|e| e.context(&format!("tokenizer.ggml.merges[{rank}]")))?,
        );
    }
    let model = BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(rules.ignore_merges)
        .build()
        .map_err(|e| TextError::input(format!("tokenizer.ggml.merges: {e}")))?;
    let bytes = ByteLevel::new();
    let table = TokenTable::build(
        &vocabulary.tokens,
        vocabulary.kinds.clone(),
        |text, kind| match kind {
            Kind::Normal | Kind::Unused | Kind::Byte => bytes.decode(text),
            Kind::Control | Kind::Unknown | Kind::UserDefined => text.as_bytes().to_vec(),
        },
    );
    Ok(Parts {
        added: added_tokens(vocabulary),
        special: special(vocabulary, &table, rules.add_bos),
        table,
        normalizer: rules.normalizer,
        pre_tokenizer: Some(rules.pre_tokenizer),
        merger: Merger::Bpe(Box::new(model)),
        leading_spaces: 0,
    })
}

/// "left right" as a pair; None when a control token takes part, which merging must never make.
fn parse_merge(
    merge: &str,
    ids: &AHashMap<String, u32>,
    control: &AHashSet<&str>,
) -> Result<Option<(String, String)>> {
    // A token may itself start with a space, so the first character never separates.
    let first = merge.chars().next().map_or(0, char::len_utf8);
    let parts = merge[first..]
        .split_once(' ')
        .map(|(rest, right)| (&merge[..first + rest.len()], right));
    let Some((left, right)) = parts.filter(|(_, right)| !right.is_empty()) else {
        return Err(TextError::input(format!(
            "\"{merge}\" is not two tokens with a space between"
        )));
    };
    let joined = format!("{left}{right}");
    for text in [left, right, &joined] {
        if !ids.contains_key(text) {
            if control.contains(text) {
                return Ok(None);
            }
            return Err(TextError::input(format!(
                "\"{merge}\": \"{text}\" is not in tokenizer.ggml.tokens"
            )));
        }
    }
    Ok(Some((left.to_owned(), right.to_owned())))
}

fn sentencepiece_parts(vocabulary: &Vocabulary) -> Result<Parts> {
    let mut spm = Spm {
        pieces: AHashMap::with_capacity(vocabulary.tokens.len()),
        bytes: ByteIds::default(),
        unk: vocabulary.unk,
    };
    for (id, (text, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
        match kind {
            Kind::Normal | Kind::UserDefined => {
                spm.pieces.entry(text.clone()).or_insert((id as u32, vocabulary.scores[id]));
            }
            Kind::Byte => match fallback_byte(text) {
                Some(byte) => spm.bytes.set(byte, id as u32),
                None => {
                    return Err(TextError::input(format!(
                        "tokenizer.ggml.token_type[{id}] says that \"{text}\" is a byte, which is spelled <0x00> to <0xFF>"
                    )))
                }
            },
            Kind::Control | Kind::Unknown | Kind::Unused => {}
        }
    }
    let table = TokenTable::build(
        &vocabulary.tokens,
        vocabulary.kinds.clone(),
        |text, kind| match kind {
            Kind::Normal | Kind::Unused => text.replace(SPACE, " ").into_bytes(),
            Kind::Byte => fallback_byte(text).into_iter().collect(),
            Kind::Control | Kind::Unknown | Kind::UserDefined => text.as_bytes().to_vec(),
        },
    );
    let add_prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if add_prefix {
        // Before every stretch of text, also after a control token: the files carry no other
        // switch.
        steps.push(Prepend::new(SPACE.to_owned()).into());
    }
    let replace = Replace::new(" ", SPACE).map_err(|e| TextError::input(e.to_string()))?;
    steps.push(replace.into());
    Ok(Parts {
        added: added_tokens(vocabulary),
        special: special(vocabulary, &table, true),
        table,
        normalizer: Some(Sequence::new(steps).into()),
        pre_tokenizer: None,
        merger: Merger::Spm(spm),
        leading_spaces: usize::from(add_prefix),
    })
}
