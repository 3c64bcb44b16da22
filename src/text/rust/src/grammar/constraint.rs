//! ShoalConstraint: one answer's way through a grammar, and the free text before its trigger.

use std::sync::{Arc, Mutex};

use llguidance::toktrie::{TokEnv, TokenId, INVALID_TOKEN};
use llguidance::Matcher;

use super::compiler::{locked, refusal};
use super::free_text::{FreeText, Watch};
use crate::error::{Result, TextError};
use crate::pipeline::ShoalTokenizer;

/// What every answer to a request starts from.
pub struct Start {
    pub matcher: Mutex<Matcher>,
    pub tokenizer: Arc<ShoalTokenizer>,
    pub trie: TokEnv,
    /// None: the grammar binds from the answer's start.
    pub watch: Option<Watch>,
    pub repeats: bool,
}

impl Start {
    /// A copy of its own, caches included: what one answer costs does not depend on others.
    fn matcher(&self) -> Matcher {
        locked(&self.matcher).deep_clone()
    }
}

enum Phase {
    Free(FreeText),
    Bound(Box<Matcher>),
    Complete,
    Failed,
}

pub struct ShoalConstraint {
    start: Arc<Start>,
    phase: Phase,
    mask: Vec<u32>,
    /// At the grammar's start, for what a trigger's token has behind it; made when it is needed.
    probe: Option<Box<Matcher>>,
}

impl ShoalConstraint {
    pub fn new(start: Arc<Start>) -> Self {
        let phase = match &start.watch {
            Some(watch) => Phase::Free(FreeText::new(watch)),
            None => Phase::Bound(Box::new(start.matcher())),
        };
        ShoalConstraint {
            start,
            phase,
            mask: Vec::new(),
            probe: None,
        }
    }

    /// One bit for each token; none: all are allowed.
    pub fn allowed(&mut self) -> Result<&[u32]> {
        self.mask.clear();
        let matcher = match &mut self.phase {
            Phase::Free(_) => {
                self.mask_free_text();
                return Ok(&self.mask);
            }
            Phase::Bound(matcher) => matcher,
            Phase::Complete => return Err(TextError::input("the answer is complete")),
            Phase::Failed => return Err(failed()),
        };
        match matcher.compute_mask() {
            Ok(mask) => self.mask.extend_from_slice(mask.as_slice()),
            Err(error) => {
                self.phase = Phase::Failed;
                return Err(refusal(error).context("the grammar cannot go on"));
            }
        }
        self.allow_all_ends();
        Ok(&self.mask)
    }

    /// All tokens but those that complete the trigger and go on as the grammar does not.
    fn mask_free_text(&mut self) {
        let (Phase::Free(free), Some(watch)) = (&self.phase, &self.start.watch) else {
            return;
        };
        if !free.may_complete(watch) {
            return;
        }
        let table = &self.start.tokenizer.table;
        let probe = (self.probe).get_or_insert_with(|| Box::new(self.start.matcher()));
        for &id in &watch.tailed {
            let behind = free.clone().push(watch, watch.bytes(table, id as i32));
            if behind.is_none_or(|behind| begins(probe, &self.start.trie, &behind)) {
                continue;
            }
            if self.mask.is_empty() {
                self.mask = all_of(table.len());
            }
            self.mask[id as usize / 32] &= !(1 << (id % 32));
        }
    }

    /// The engine knows one token that ends an answer; a model may have several.
    fn allow_all_ends(&mut self) {
        let end = self.start.trie.tok_trie().eos_token();
        if end == INVALID_TOKEN || !has_bit(&self.mask, end) {
            return;
        }
        for &id in &self.start.tokenizer.special.end_of_generation {
            if let Some(word) = self.mask.get_mut(id as usize / 32) {
                *word |= 1 << (id % 32);
            }
        }
    }

    /// True when the answer is complete.
    pub fn accept(&mut self, id: i32) -> Result<bool> {
        if self.start.tokenizer.table.kind(id).is_none() {
            return Err(TextError::input(format!(
                "token {id} is not in the vocabulary"
            )));
        }
        match &mut self.phase {
            Phase::Free(_) => self.push_free_text(id)?,
            Phase::Bound(matcher) => {
                if let Err(error) = matcher.consume_token(id as TokenId) {
                    self.phase = Phase::Failed;
                    return Err(refusal(error).context("the grammar does not allow this token"));
                }
            }
            Phase::Complete => return Err(TextError::input("the answer is complete")),
            Phase::Failed => return Err(failed()),
        }
        self.settle()
    }

    /// Leaves a grammar that has come to its end.
    fn settle(&mut self) -> Result<bool> {
        let Phase::Bound(matcher) = &self.phase else {
            return Ok(false);
        };
        if !matcher.is_stopped() {
            return Ok(false);
        }
        if !matcher.stop_reason().is_ok() {
            self.phase = Phase::Failed;
            return Err(failed());
        }
        let is_complete = self.start.watch.is_none() || !self.start.repeats;
        self.phase = if is_complete {
            Phase::Complete
        } else {
            Phase::Free(FreeText::again())
        };
        Ok(is_complete)
    }

    fn push_free_text(&mut self, id: i32) -> Result<()> {
        let (Phase::Free(free), Some(watch)) = (&mut self.phase, &self.start.watch) else {
            return Ok(());
        };
        let bytes = watch.bytes(&self.start.tokenizer.table, id);
        let Some(behind) = free.push(watch, bytes) else {
            return Ok(());
        };
        let mut matcher = self
            .probe
            .take()
            .unwrap_or_else(|| Box::new(self.start.matcher()));
        let tokens = tokens_of(&self.start.trie, &behind);
        let taken = tokens.and_then(|tokens| matcher.consume_tokens(&tokens).ok());
        self.phase = match taken {
            Some(()) => Phase::Bound(matcher),
            None => Phase::Failed,
        };
        taken.ok_or_else(|| {
            TextError::input("the grammar does not allow what is behind its trigger")
        })
    }
}

/// Whether the grammar's texts may begin so.
fn begins(matcher: &mut Matcher, trie: &TokEnv, text: &[u8]) -> bool {
    tokens_of(trie, text).is_some_and(
        |tokens| matches!(matcher.validate_tokens(&tokens), Ok(taken) if taken == tokens.len()),
    )
}

/// None where the vocabulary cannot spell the text.
fn tokens_of(trie: &TokEnv, text: &[u8]) -> Option<Vec<TokenId>> {
    let trie = trie.tok_trie();
    let tokens = trie.greedy_tokenize(text);
    let spelled: usize = tokens.iter().map(|&id| trie.token(id).len()).sum();
    (spelled == text.len()).then_some(tokens)
}

/// The mask that has all of so many tokens.
fn all_of(count: usize) -> Vec<u32> {
    let mut mask = vec![u32::MAX; count.div_ceil(32)];
    if let (Some(last), extra @ 1..) = (mask.last_mut(), count % 32) {
        *last = (1 << extra) - 1;
    }
    mask
}

fn failed() -> TextError {
    TextError::input("the grammar has failed before")
}

fn has_bit(mask: &[u32], id: TokenId) -> bool {
    let word = mask.get(id as usize / 32);
    word.is_some_and(|word| word >> (id % 32) & 1 != 0)
}
