//! The C interface; see `shoal_text.h` for its contract.
//!
//! Safety, for every function here: pointers are valid for the time of the call, and sizes match,
//! as the header asks of callers. Panics stop at `guard`.

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use crate::error::{Result, TextError};
use crate::json;
use crate::pipeline::{Ends, ShoalTokenizer};
use crate::special::Special;
use crate::table::Kind;
use crate::template::{ShoalTemplate, SpecialTexts};
use crate::vocabulary::{self, Vocabulary};

const OK: c_int = 0;
const ERROR: c_int = 1;
const REFUSED: c_int = 2;
const BUG: c_int = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShoalText {
    data: *const u8,
    size: usize,
}

#[repr(C)]
pub struct ShoalBuffer {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct ShoalIds {
    data: *mut i32,
    size: usize,
}

#[repr(C)]
pub struct ShoalTokenizerOptions {
    bos_token: ShoalText,
    eos_token: ShoalText,
    unk_token: ShoalText,
    pad_token: ShoalText,
    add_bos: i8,
    add_eos: i8,
    end_of_generation: *const i64,
    end_of_generation_count: usize,
}

#[repr(C)]
pub struct ShoalVocabulary {
    model: ShoalText,
    pre: ShoalText,
    tokens: *const ShoalText,
    token_count: usize,
    scores: *const f32,
    types: *const i32,
    merges: *const ShoalText,
    merge_count: usize,
    bos: i64,
    eos: i64,
    eot: i64,
    eom: i64,
    unk: i64,
    pad: i64,
    add_bos: i8,
    add_eos: i8,
    add_space_prefix: i8,
}

#[repr(C)]
pub struct ShoalTokenizerInfo {
    vocabulary_size: i32,
    leading_spaces: i32,
    bos: i32,
    eos: i32,
    eot: i32,
    unk: i32,
    pad: i32,
    add_bos: i8,
    add_eos: i8,
    end_of_generation: *const i32,
    end_of_generation_count: usize,
}

#[repr(C)]
pub struct ShoalTemplateTokens {
    bos_token: ShoalText,
    eos_token: ShoalText,
    unk_token: ShoalText,
    pad_token: ShoalText,
}

impl ShoalText {
    pub fn borrow(bytes: &[u8]) -> Self {
        ShoalText {
            data: bytes.as_ptr(),
            size: bytes.len(),
        }
    }

    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()).map_err(|e| {
            TextError::input(format!("{what} is not UTF-8 at byte {}", e.valid_up_to()))
        })
    }

    /// None when the text was not given.
    unsafe fn optional<'a>(self, what: &str) -> Result<Option<&'a str>> {
        if self.data.is_null() {
            return Ok(None);
        }
        self.text(what).map(Some)
    }
}

pub unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

fn buffer(bytes: Vec<u8>) -> ShoalBuffer {
    let bytes = bytes.into_boxed_slice();
    let size = bytes.len();
    ShoalBuffer {
        data: Box::into_raw(bytes).cast(),
        size,
    }
}

/// Runs the work, keeps panics in, and turns the outcome into a code and an output.
pub unsafe fn guard<T>(
    out: *mut T,
    error: *mut ShoalBuffer,
    work: impl FnOnce() -> Result<T>,
) -> c_int {
    let (code, message) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            out.write(value);
            return OK;
        }
        Ok(Err(TextError::Input(message))) => (ERROR, message),
        Ok(Err(TextError::Refused(message))) => (REFUSED, message),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            (BUG, text.unwrap_or("panic").to_owned())
        }
    };
    error.write(buffer(message.into_bytes()));
    code
}

fn switch(value: i8) -> Option<bool> {
    (value >= 0).then_some(value != 0)
}

fn optional_id(value: i64) -> Option<u32> {
    u32::try_from(value).ok()
}

/// # Safety
/// The buffer came from this library and was not freed yet.
#[no_mangle]
pub unsafe extern "C" fn shoal_buffer_free(buffer: ShoalBuffer) {
    if !buffer.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            buffer.data,
            buffer.size,
        )));
    }
}

/// # Safety
/// The ids came from this library and were not freed yet.
#[no_mangle]
pub unsafe extern "C" fn shoal_ids_free(ids: ShoalIds) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            ids.data, ids.size,
        )));
    }
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_from_json(
    json: ShoalText,
    options: *const ShoalTokenizerOptions,
    tokenizer: *mut *const ShoalTokenizer,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(tokenizer, error, || {
        let options = &*options;
        let options = json::Options {
            bos_token: options.bos_token.optional("bos_token")?,
            eos_token: options.eos_token.optional("eos_token")?,
            unk_token: options.unk_token.optional("unk_token")?,
            pad_token: options.pad_token.optional("pad_token")?,
            add_bos: switch(options.add_bos),
            add_eos: switch(options.add_eos),
            end_of_generation: slice(options.end_of_generation, options.end_of_generation_count),
        };
        let built = json::build(json.text("tokenizer.json")?, &options)?;
        Ok(Arc::into_raw(Arc::new(built)))
    })
}

unsafe fn read_vocabulary<'a>(raw: &ShoalVocabulary) -> Result<Vocabulary<'a>> {
    let model = raw.model.text("tokenizer.ggml.model")?;
    let mut tokens = Vec::with_capacity(raw.token_count);
    for (id, token) in slice(raw.tokens, raw.token_count).iter().enumerate() {
        tokens.push(
            token
                .text(&format!("tokenizer.ggml.tokens[{id}]"))?
                .to_owned(),
        );
    }
    let mut merges = Vec::with_capacity(raw.merge_count);
    for (rank, merge) in slice(raw.merges, raw.merge_count).iter().enumerate() {
        merges.push(merge.text(&format!("tokenizer.ggml.merges[{rank}]"))?);
    }
    let ids = [raw.bos, raw.eos, raw.eot, raw.eom, raw.unk, raw.pad].map(optional_id);
    let [bos, eos, eot, eom, unk, pad] = ids;
    let kinds = if raw.types.is_null() {
        vocabulary::default_kinds(model, &tokens, &ids)
    } else {
        let types = slice(raw.types, raw.token_count);
        types
            .iter()
            .map(|&value| Kind::from_value(value).unwrap_or(Kind::Normal))
            .collect()
    };
    Ok(Vocabulary {
        model,
        pre: raw.pre.text("tokenizer.ggml.pre")?,
        tokens,
        kinds,
        scores: slice(raw.scores, raw.token_count),
        merges,
        bos,
        eos,
        eot,
        eom,
        unk,
        pad,
        add_bos: switch(raw.add_bos),
        add_eos: switch(raw.add_eos),
        add_space_prefix: switch(raw.add_space_prefix),
    })
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_from_vocabulary(
    vocabulary: *const ShoalVocabulary,
    tokenizer: *mut *const ShoalTokenizer,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(tokenizer, error, || {
        let built = vocabulary::build(read_vocabulary(&*vocabulary)?)?;
        Ok(Arc::into_raw(Arc::new(built)))
    })
}

/// # Safety
/// The tokenizer came from this library and was not freed yet, or is null.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_free(tokenizer: *const ShoalTokenizer) {
    if !tokenizer.is_null() {
        // Grammars may hold it further.
        drop(Arc::from_raw(tokenizer));
    }
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_info(
    tokenizer: *const ShoalTokenizer,
) -> ShoalTokenizerInfo {
    let tokenizer = &*tokenizer;
    let special = &tokenizer.special;
    let id = |id: Option<u32>| id.map_or(-1, |id| id as i32);
    ShoalTokenizerInfo {
        vocabulary_size: tokenizer.table.len() as i32,
        leading_spaces: tokenizer.leading_spaces as i32,
        bos: id(special.bos),
        eos: id(special.eos),
        eot: id(special.eot),
        unk: id(special.unk),
        pad: id(special.pad),
        add_bos: Special::adds(&special.prefix, special.bos).into(),
        add_eos: Special::adds(&special.suffix, special.eos).into(),
        end_of_generation: special.end_of_generation.as_ptr(),
        end_of_generation_count: special.end_of_generation.len(),
    }
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_token_text(
    tokenizer: *const ShoalTokenizer,
    id: i32,
) -> ShoalText {
    ShoalText::borrow((*tokenizer).table.text(id))
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_token_bytes(
    tokenizer: *const ShoalTokenizer,
    id: i32,
) -> ShoalText {
    ShoalText::borrow((*tokenizer).table.bytes(id))
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_token_kind(
    tokenizer: *const ShoalTokenizer,
    id: i32,
) -> i32 {
    (*tokenizer).table.kind(id).map_or(0, |kind| kind as i32)
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_find(
    tokenizer: *const ShoalTokenizer,
    token_text: ShoalText,
) -> i32 {
    let text = std::str::from_utf8(token_text.bytes()).ok();
    text.and_then(|text| (*tokenizer).table.find(text))
        .map_or(-1, |id| id as i32)
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_tokenizer_encode(
    tokenizer: *const ShoalTokenizer,
    text: ShoalText,
    parse_special: c_int,
    ends: c_int,
    ids: *mut ShoalIds,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(ids, error, || {
        let ends = match ends {
            1 => Ends::Both,
            2 => Ends::Start,
            _ => Ends::None,
        };
        let ids = (*tokenizer)
            .encode(text.text("the text")?, parse_special != 0, ends)?
            .into_boxed_slice();
        let size = ids.len();
        Ok(ShoalIds {
            data: Box::into_raw(ids).cast(),
            size,
        })
    })
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_template_parse(
    source: ShoalText,
    tokens: *const ShoalTemplateTokens,
    result: *mut *mut ShoalTemplate,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(result, error, || {
        let tokens = &*tokens;
        let texts: SpecialTexts = [
            ("bos_token", tokens.bos_token.optional("bos_token")?),
            ("eos_token", tokens.eos_token.optional("eos_token")?),
            ("unk_token", tokens.unk_token.optional("unk_token")?),
            ("pad_token", tokens.pad_token.optional("pad_token")?),
        ];
        let parsed = ShoalTemplate::parse(source.text("the chat template")?, &texts)?;
        Ok(Box::into_raw(Box::new(parsed)))
    })
}

/// # Safety
/// The template came from this library and was not freed yet, or is null.
#[no_mangle]
pub unsafe extern "C" fn shoal_template_free(chat_template: *mut ShoalTemplate) {
    if !chat_template.is_null() {
        drop(Box::from_raw(chat_template));
    }
}

/// # Safety
/// See the module.
#[no_mangle]
pub unsafe extern "C" fn shoal_template_render(
    chat_template: *const ShoalTemplate,
    request_json: ShoalText,
    now: i64,
    text: *mut ShoalBuffer,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(text, error, || {
        let rendered = (*chat_template).render(request_json.text("the request")?, now)?;
        Ok(buffer(rendered.into_bytes()))
    })
}
