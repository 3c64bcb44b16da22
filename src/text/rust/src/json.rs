//! A tokenizer from a tokenizer.json.
//!
//! The file's parts go to the crate as they are, except that control tokens are taken out of the
//! merging model (text from a user must never become one) and that the bytes of each token are
//! worked out once from the decoder that the file names.

use std::collections::HashMap;

use ahash::{AHashMap, AHashSet, RandomState};
use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokenizers::models::bpe::BPE;
use tokenizers::{
    AddedToken, Encoding, NormalizerWrapper, PostProcessor, PostProcessorWrapper,
    PreTokenizerWrapper, Token,
};

use crate::byte_level::{fallback_byte, ByteLevel};
use crate::error::{Result, TextError};
use crate::pipeline::{Merger, Parts, ShoalTokenizer};
use crate::special::Special;
use crate::table::{Kind, TokenTable};
use crate::unigram::ByteUnigram;

/// What the files beside a tokenizer.json say.
#[derive(Default)]
pub struct Options<'a> {
    pub bos_token: Option<&'a str>,
    pub eos_token: Option<&'a str>,
    pub unk_token: Option<&'a str>,
    pub pad_token: Option<&'a str>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub end_of_generation: &'a [i64],
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(borrow, default)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'a RawValue>,
    #[serde(default)]
    decoder: Option<DecoderFile>,
    #[serde(borrow)]
    model: ModelFile<'a>,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Deserialize)]
struct ModelFile<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow)]
    vocab: &'a RawValue,
    #[serde(borrow, default)]
    merges: Option<&'a RawValue>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    unk_id: Option<usize>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
struct DecoderFile {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    decoders: Vec<DecoderFile>,
    #[serde(default)]
    pattern: Option<PatternFile>,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    start: usize,
    #[serde(default)]
    replacement: Option<String>,
    #[serde(default)]
    prepend_scheme: Option<String>,
    #[serde(default)]
    add_prefix_space: Option<bool>,
}

#[derive(Deserialize)]
struct PatternFile {
    #[serde(rename = "String", default)]
    text: Option<String>,
}

/// What a decoder does to single tokens, and to the start of a text.
#[derive(Default, Debug, PartialEq)]
struct Decoding {
    byte_level: bool,
    byte_fallback: bool,
    replace: Vec<(String, String)>,
    leading_spaces: usize,
}

impl Decoding {
    fn add(&mut self, decoder: &DecoderFile) -> Result<()> {
        let refuse = |what: &str| Err(TextError::input(format!("decoder {} {what}", decoder.kind)));
        match decoder.kind.as_str() {
            "Sequence" => {
                for inner in &decoder.decoders {
                    self.add(inner)?;
                }
            }
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "Replace" => match (
                decoder.pattern.as_ref().and_then(|p| p.text.clone()),
                &decoder.content,
            ) {
                (Some(from), Some(to)) => self.replace.push((from, to.clone())),
                _ => return refuse("without a text pattern is not supported"),
            },
            "Strip" => match decoder.content.as_deref() {
                Some(" ") => self.leading_spaces = decoder.start,
                _ => return refuse("of something else than spaces is not supported"),
            },
            "Metaspace" => {
                let space = decoder
                    .replacement
                    .clone()
                    .unwrap_or_else(|| "▁".to_owned());
                self.replace.push((space, " ".to_owned()));
                let never = decoder.prepend_scheme.as_deref() == Some("never");
                self.leading_spaces =
                    usize::from(!never && decoder.add_prefix_space != Some(false));
            }
            _ => return refuse("is not supported"),
        }
        Ok(())
    }

    fn bytes_of(&self, bytes: &ByteLevel, text: &str, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Byte => fallback_byte(text).into_iter().collect(),
            Kind::Normal | Kind::Unused if self.byte_level => bytes.decode(text),
            // The byte alphabet is for the merging model; added tokens are spelled plainly.
            Kind::Control | Kind::Unknown | Kind::UserDefined if self.byte_level => {
                text.as_bytes().to_vec()
            }
            _ => {
                let replace = |text: String, (from, to): &(String, String)| text.replace(from, to);
                self.replace
                    .iter()
                    .fold(text.to_owned(), replace)
                    .into_bytes()
            }
        }
    }
}

/// The vocabulary in the two shapes that models have.
enum Entries {
    ByText(AHashMap<String, u32>),
    Scored(Vec<(String, f64)>),
}

impl Entries {
    fn for_each(&self, mut f: impl FnMut(u32, &str)) {
        match self {
            Entries::ByText(map) => map.iter().for_each(|(text, &id)| f(id, text)),
            Entries::Scored(list) => list
                .iter()
                .enumerate()
                .for_each(|(id, (text, _))| f(id as u32, text)),
        }
    }
}

fn parse<T: DeserializeOwned>(raw: &RawValue, what: &str) -> Result<T> {
    serde_json::from_str(raw.get()).map_err(|e| TextError::input(format!("{what}: {e}")))
}

fn parse_some<T: DeserializeOwned>(raw: Option<&RawValue>, what: &str) -> Result<Option<T>> {
    raw.map(|raw| parse(raw, what)).transpose()
}

pub fn build(text: &str, options: &Options) -> Result<ShoalTokenizer> {
    let file: File = serde_json::from_str(text)
        .map_err(|e| TextError::input(format!("no tokenizer.json: {e}")))?;
    let mut decoding = Decoding::default();
    if let Some(decoder) = &file.decoder {
        decoding.add(decoder)?;
    }
    decoding.byte_fallback |= file.model.byte_fallback;
    let entries = if file.model.kind.as_deref() == Some("Unigram") {
        Entries::Scored(parse(file.model.vocab, "model.vocab")?)
    } else {
        Entries::ByText(
            parse::<HashMap<String, u32, RandomState>>(file.model.vocab, "model.vocab")?.into(),
        )
    };
    let (tokens, kinds) = list_tokens(&file, &entries, &decoding)?;
    let bytes = ByteLevel::new();
    let table = TokenTable::build(&tokens, kinds, |text, kind| {
        decoding.bytes_of(&bytes, text, kind)
    });
    let normalizer: Option<NormalizerWrapper> = parse_some(file.normalizer, "normalizer")?;
    let pre_tokenizer: Option<PreTokenizerWrapper> =
        parse_some(file.pre_tokenizer, "pre_tokenizer")?;
    let special = find_special(&file, &table, options)?;
    let merger = build_merger(&file, entries)?;
    Ok(ShoalTokenizer::new(Parts {
        added: file
            .added_tokens
            .into_iter()
            .map(|added| added.token)
            .collect(),
        table,
        normalizer,
        pre_tokenizer,
        merger,
        special,
        leading_spaces: decoding.leading_spaces,
    }))
}

/// All tokens by id, and what each is. Ids that no entry has are unused and empty.
fn list_tokens(
    file: &File,
    entries: &Entries,
    decoding: &Decoding,
) -> Result<(Vec<String>, Vec<Kind>)> {
    let mut count = 0usize;
    let mut largest = 0u32;
    let mut see = |id: u32| {
        count += 1;
        largest = largest.max(id);
    };
    entries.for_each(|id, _| see(id));
    file.added_tokens.iter().for_each(|added| see(added.id));
    if count == 0 {
        return Err(TextError::input("model.vocab is empty"));
    }
    // The table has a row for each id up to the largest: a foreign number must not size it alone.
    if largest as usize >= 4 * count + 65536 {
        return Err(TextError::input(format!(
            "token id {largest} is too large for {count} tokens"
        )));
    }
    let mut tokens = vec![String::new(); largest as usize + 1];
    let mut kinds = vec![Kind::Unused; tokens.len()];
    entries.for_each(|id, text| {
        let is_byte = decoding.byte_fallback && fallback_byte(text).is_some();
        tokens[id as usize] = text.to_owned();
        kinds[id as usize] = if is_byte { Kind::Byte } else { Kind::Normal };
    });
    let mut taken = AHashMap::new();
    for (place, added) in file.added_tokens.iter().enumerate() {
        let id = added.id as usize;
        let text = &added.token.content;
        if let Some(other) = taken.insert(id, text).filter(|&other| other != text) {
            return Err(TextError::input(format!(
                "added_tokens[{place}]: \"{text}\" has the id {id} of \"{other}\""
            )));
        }
        tokens[id].clone_from(&added.token.content);
        kinds[id] = if Some(&added.token.content) == file.model.unk_token.as_ref() {
            Kind::Unknown
        } else if added.token.special {
            Kind::Control
        } else {
            Kind::UserDefined
        };
    }
    Ok((tokens, kinds))
}

fn build_merger(file: &File, entries: Entries) -> Result<Merger> {
    let control: AHashSet<&str> = file
        .added_tokens
        .iter()
        .filter(|a| a.token.special)
        .map(|a| a.token.content.as_str())
        .collect();
    let model = &file.model;
    match (model.kind.as_deref(), entries) {
        (Some("BPE") | None, Entries::ByText(mut ids)) => {
            let Some(merges) = model.merges else {
                return Err(TextError::input("model.merges is missing"));
            };
            let mut merges = parse_merges(merges)?;
            merges.retain(|(left, right)| {
                let joined = format!("{left}{right}");
                ![left, right, &joined]
                    .iter()
                    .any(|text| control.contains(text.as_str()))
            });
            ids.retain(|text, _| {
                Some(text) == model.unk_token.as_ref() || !control.contains(text.as_str())
            });
            let mut builder = BPE::builder()
                .vocab_and_merges(ids, merges)
                .fuse_unk(model.fuse_unk)
                .byte_fallback(model.byte_fallback)
                .ignore_merges(model.ignore_merges);
            if let Some(unk) = &model.unk_token {
                builder = builder.unk_token(unk.clone());
            }
            if let Some(prefix) = model
                .continuing_subword_prefix
                .as_ref()
                .filter(|text| !text.is_empty())
            {
                builder = builder.continuing_subword_prefix(prefix.clone());
            }
            if let Some(suffix) = model
                .end_of_word_suffix
                .as_ref()
                .filter(|text| !text.is_empty())
            {
                builder = builder.end_of_word_suffix(suffix.clone());
            }
            let built = builder
                .build()
                .map_err(|e| TextError::input(format!("model: {e}")))?;
            Ok(Merger::Bpe(Box::new(built)))
        }
        (Some("Unigram"), Entries::Scored(list)) => Ok(Merger::Unigram(ByteUnigram::new(
            list,
            model.unk_id,
            model.byte_fallback,
        )?)),
        (kind, _) => Err(TextError::input(format!(
            "model.type is \"{}\", which is not supported; supported are BPE and Unigram",
            kind.unwrap_or_default()
        ))),
    }
}

/// Merges are pairs of texts, or texts with a space between, all of one form.
fn parse_merges(raw: &RawValue) -> Result<Vec<(String, String)>> {
    if raw.get()[1..].trim_start().starts_with('[') {
        return parse(raw, "model.merges");
    }
    let split = |(rank, text): (usize, String)| match text.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.to_owned(), right.to_owned()))
        }
        _ => Err(TextError::input(format!(
            "model.merges[{rank}]: \"{text}\" is not two tokens with a space between"
        ))),
    };
    let merges: Vec<String> = parse(raw, "model.merges")?;
    merges.into_iter().enumerate().map(split).collect()
}

fn find_special(file: &File, table: &TokenTable, options: &Options) -> Result<Special> {
    let require =
        |text: Option<&str>, what: &str| text.map(|text| table.require(text, what)).transpose();
    let (prefix, suffix) = ends_of(file.post_processor, table.len())?;
    let mut special = Special {
        bos: require(options.bos_token, "bos_token")?,
        eos: require(options.eos_token, "eos_token")?,
        unk: options
            .unk_token
            .and_then(|text| table.find(text))
            .or_else(|| {
                file.model
                    .unk_token
                    .as_ref()
                    .and_then(|text| table.find(text))
            })
            .or(file.model.unk_id.map(|id| id as u32)),
        pad: options.pad_token.and_then(|text| table.find(text)),
        prefix,
        suffix,
        ..Special::default()
    };
    if options.bos_token.is_none() && special.prefix.len() == 1 {
        special.bos = Some(special.prefix[0] as u32);
    }
    special.set_add_bos(options.add_bos);
    special.set_add_eos(options.add_eos);
    let mut more = Vec::new();
    for &id in options.end_of_generation {
        let valid = u32::try_from(id)
            .ok()
            .filter(|&id| (id as usize) < table.len());
        more.push(valid.ok_or_else(|| {
            TextError::input(format!(
                "eos_token_id {id} is outside of the {} tokens",
                table.len()
            ))
        })?);
    }
    special.find_ends(table, &more);
    Ok(special)
}

/// What the post-processor puts before and after a text, found by giving it one marked token.
fn ends_of(
    post_processor: Option<&RawValue>,
    vocabulary_size: usize,
) -> Result<(Vec<i32>, Vec<i32>)> {
    let Some(post_processor) =
        parse_some::<PostProcessorWrapper>(post_processor, "post_processor")?
    else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mark = u32::MAX;
    let text = Encoding::from_tokens(vec![Token::new(mark, String::new(), (0, 0))], 0);
    let framed = post_processor
        .process(text, None, true)
        .map_err(|e| TextError::input(format!("post_processor: {e}")))?;
    let mut sides = framed.get_ids().split(|&id| id == mark);
    let mut next = || -> Result<Vec<i32>> {
        let side = sides.next().unwrap_or_default();
        if let Some(id) = side.iter().find(|&&id| id as usize >= vocabulary_size) {
            return Err(TextError::input(format!(
                "post_processor adds token {id}, which does not exist"
            )));
        }
        Ok(side.iter().map(|&id| id as i32).collect())
    };
    Ok((next()?, next()?))
}
