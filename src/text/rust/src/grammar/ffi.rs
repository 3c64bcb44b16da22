//! The C interface of grammars; see `shoal_text.h` for its contract and `ffi.rs` for safety.

use std::ffi::c_int;
use std::sync::Arc;

use super::compiler::{Kind, Part, ShoalGrammar, ShoalGrammarCompiler, Source};
use super::constraint::ShoalConstraint;
use super::free_text::Quiet;
use crate::error::{Result, TextError};
use crate::ffi::{guard, slice, ShoalBuffer, ShoalText};
use crate::pipeline::ShoalTokenizer;

#[repr(C)]
pub struct ShoalGrammarPart {
    name: ShoalText,
    kind: i32,
    text: ShoalText,
}

#[repr(C)]
pub struct ShoalQuietText {
    open: ShoalText,
    closes: *const ShoalText,
    close_count: usize,
    is_anywhere: c_int,
    starts_inside: c_int,
}

#[repr(C)]
pub struct ShoalGrammarSource {
    kind: i32,
    text: ShoalText,
    parts: *const ShoalGrammarPart,
    part_count: usize,
    trigger: ShoalText,
    quiet: ShoalQuietText,
    repeats: c_int,
}

#[repr(C)]
pub struct ShoalMask {
    words: *const u32,
    count: usize,
}

fn kind_of(kind: i32) -> Result<Kind> {
    Ok(match kind {
        0 => Kind::JsonSchema,
        1 => Kind::Regex,
        2 => Kind::Lark,
        3 => Kind::Gbnf,
        other => return Err(TextError::input(format!("{other} is no kind of grammar"))),
    })
}

unsafe fn read_part<'a>(raw: &ShoalGrammarPart) -> Result<Part<'a>> {
    Ok(Part {
        name: raw.name.text("the grammar's name")?,
        kind: kind_of(raw.kind)?,
        text: raw.text.text("the grammar")?,
    })
}

unsafe fn read_quiet<'a>(raw: &ShoalQuietText) -> Result<Quiet<'a>> {
    let closes = slice(raw.closes, raw.close_count).iter();
    Ok(Quiet {
        open: raw.open.text("the mark")?,
        closes: closes
            .map(|close| close.text("the mark"))
            .collect::<Result<_>>()?,
        is_anywhere: raw.is_anywhere != 0,
        starts_inside: raw.starts_inside != 0,
    })
}

unsafe fn read_source<'a>(raw: &ShoalGrammarSource) -> Result<Source<'a>> {
    let parts = slice(raw.parts, raw.part_count).iter();
    Ok(Source {
        kind: kind_of(raw.kind)?,
        text: raw.text.text("the grammar")?,
        parts: parts.map(|part| read_part(part)).collect::<Result<_>>()?,
        trigger: raw.trigger.text("the trigger")?,
        quiet: read_quiet(&raw.quiet)?,
        repeats: raw.repeats != 0,
    })
}

/// # Safety
/// See `ffi`.
#[no_mangle]
pub unsafe extern "C" fn shoal_grammar_compiler_new(
    tokenizer: *const ShoalTokenizer,
    compiler: *mut *mut ShoalGrammarCompiler,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(compiler, error, || {
        // The caller's own reference stays the caller's.
        Arc::increment_strong_count(tokenizer);
        let built = ShoalGrammarCompiler::new(Arc::from_raw(tokenizer))?;
        Ok(Box::into_raw(Box::new(built)))
    })
}

/// # Safety
/// The compiler came from this library and was not freed yet, or is null.
#[no_mangle]
pub unsafe extern "C" fn shoal_grammar_compiler_free(compiler: *mut ShoalGrammarCompiler) {
    if !compiler.is_null() {
        drop(Box::from_raw(compiler));
    }
}

/// # Safety
/// See `ffi`.
#[no_mangle]
pub unsafe extern "C" fn shoal_grammar_compile(
    compiler: *const ShoalGrammarCompiler,
    source: *const ShoalGrammarSource,
    grammar: *mut *mut ShoalGrammar,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(grammar, error, || {
        let compiled = (*compiler).compile(&read_source(&*source)?)?;
        Ok(Box::into_raw(Box::new(compiled)))
    })
}

/// # Safety
/// The grammar came from this library and was not freed yet, or is null.
#[no_mangle]
pub unsafe extern "C" fn shoal_grammar_free(grammar: *mut ShoalGrammar) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

/// # Safety
/// See `ffi`.
#[no_mangle]
pub unsafe extern "C" fn shoal_grammar_start(
    grammar: *const ShoalGrammar,
    constraint: *mut *mut ShoalConstraint,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(constraint, error, || {
        Ok(Box::into_raw(Box::new((*grammar).start())))
    })
}

/// # Safety
/// The constraint came from this library and was not freed yet, or is null.
#[no_mangle]
pub unsafe extern "C" fn shoal_constraint_free(constraint: *mut ShoalConstraint) {
    if !constraint.is_null() {
        drop(Box::from_raw(constraint));
    }
}

/// # Safety
/// See `ffi`. The words are the constraint's, until its next call.
#[no_mangle]
pub unsafe extern "C" fn shoal_constraint_allowed(
    constraint: *mut ShoalConstraint,
    mask: *mut ShoalMask,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(mask, error, || {
        let words = (*constraint).allowed()?;
        Ok(ShoalMask {
            words: words.as_ptr(),
            count: words.len(),
        })
    })
}

/// # Safety
/// See `ffi`.
#[no_mangle]
pub unsafe extern "C" fn shoal_constraint_accept(
    constraint: *mut ShoalConstraint,
    id: i32,
    is_complete: *mut c_int,
    error: *mut ShoalBuffer,
) -> c_int {
    guard(is_complete, error, || Ok((*constraint).accept(id)?.into()))
}
