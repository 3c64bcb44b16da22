//! ShoalConstraint: one answer's way through a grammar, and the free text before its trigger.

use std::sync::{Arc, Mutex};

use llguidance::toktrie::{TokEnv, TokenId, INVALID_TOKEN};
use llguidance::Matcher;

use super::compiler::{locked, refusal};
use crate::error::{Result, TextError};
use crate::pipeline::ShoalTokenizer;

/// What every answer to a request starts from.
pub struct Start {
    pub matcher: Mutex<Matcher>,
    pub tokenizer: Arc<ShoalTokenizer>,
    pub trie: TokEnv,
    pub trigger: Vec<u8>,
    pub repeats: bool,
}

impl Start {
    /// A copy of its own, caches included: what one answer costs does not depend on others.
    fn matcher(&self) -> Matcher {
        locked(&self.matcher).deep_clone()
    }
}

enum Phase {
    /// Free text; its last bytes, fewer than the trigger's.
    Free(Vec<u8>),
    Bound(Box<Matcher>),
    Complete,
    Failed,
}

pub struct ShoalConstraint {
    start: Arc<Start>,
    phase: Phase,
    mask: Vec<u32>,
}

impl ShoalConstraint {
    pub fn new(start: Arc<Start>) -> Self {
        let phase = if start.trigger.is_empty() {
            Phase::Bound(Box::new(start.matcher()))
        } else {
            Phase::Free(Vec::new())
        };
        ShoalConstraint {
            start,
            phase,
            mask: Vec::new(),
        }
    }

    /// One bit for each token; none: all are allowed.
    pub fn allowed(&mut self) -> Result<&[u32]> {
        self.mask.clear();
        let matcher = match &mut self.phase {
            Phase::Free(_) => return Ok(&self.mask),
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
            Phase::Free(tail) => {
                tail.extend_from_slice(self.start.tokenizer.table.bytes(id));
                self.look_for_trigger();
            }
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
        let is_complete = self.start.trigger.is_empty() || !self.start.repeats;
        self.phase = if is_complete {
            Phase::Complete
        } else {
            Phase::Free(Vec::new())
        };
        Ok(is_complete)
    }

    fn look_for_trigger(&mut self) {
        let Phase::Free(tail) = &mut self.phase else {
            return;
        };
        let trigger = &self.start.trigger;
        if let Some(at) = find(tail, trigger) {
            let behind = tail.split_off(at + trigger.len());
            let mut matcher = self.start.matcher();
            let tokens = self.start.trie.tok_trie().greedy_tokenize(&behind);
            if matches!(matcher.try_consume_tokens(&tokens), Ok(taken) if taken == tokens.len()) {
                self.phase = Phase::Bound(Box::new(matcher));
                return;
            }
            *tail = behind;
        }
        let kept = trigger.len() - 1;
        if tail.len() > kept {
            tail.drain(..tail.len() - kept);
        }
    }
}

fn failed() -> TextError {
    TextError::input("the grammar has failed before")
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn has_bit(mask: &[u32], id: TokenId) -> bool {
    let word = mask.get(id as usize / 32);
    word.is_some_and(|word| word >> (id % 32) & 1 != 0)
}
