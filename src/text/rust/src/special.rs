//! Which ids have a meaning of their own, and which of them end an answer.

use crate::table::{Kind, TokenTable};

/// Spellings of control tokens that end an answer, in the models that have them. A model file names
/// one end token at most, while chat models end a turn, a tool call or a text with different ones.
const END_OF_GENERATION: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
];

/// Spellings of the token that ends a turn of a conversation.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
];

#[derive(Debug, Default, Clone)]
pub struct Special {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    /// Rising, without duplicates.
    pub end_of_generation: Vec<i32>,
    /// What goes before and after a text.
    pub prefix: Vec<i32>,
    pub suffix: Vec<i32>,
}

impl Special {
    pub fn adds(ids: &[i32], token: Option<u32>) -> bool {
        token.is_some_and(|token| ids.contains(&(token as i32)))
    }

    /// Applies a model's switch for BOS at the start.
    pub fn set_add_bos(&mut self, add: Option<bool>) {
        let (Some(add), Some(bos)) = (add, self.bos) else {
            return;
        };
        let has = self.prefix.first() == Some(&(bos as i32));
        if add && !has {
            self.prefix.insert(0, bos as i32);
        } else if !add && has {
            self.prefix.remove(0);
        }
    }

    /// Applies a model's switch for EOS at the end.
    pub fn set_add_eos(&mut self, add: Option<bool>) {
        let (Some(add), Some(eos)) = (add, self.eos) else {
            return;
        };
        let has = self.suffix.last() == Some(&(eos as i32));
        if add && !has {
            self.suffix.push(eos as i32);
        } else if !add && has {
            self.suffix.pop();
        }
    }

    /// Fills in the end of a turn and all ends of an answer; `more` are ids that a file names.
    pub fn find_ends(&mut self, table: &TokenTable, more: &[u32]) {
        let control = |text: &&str| {
            table
                .find(text)
                .filter(|&id| table.kind(id as i32) == Some(Kind::Control))
        };
        if self.eot.is_none() {
            self.eot = END_OF_TURN.iter().find_map(control);
        }
        let mut ends: Vec<u32> = END_OF_GENERATION.iter().filter_map(control).collect();
        // In the Harmony format <|end|> ends one message of an answer and not the answer.
        if ["<|return|>", "<|call|>"]
            .iter()
            .all(|text| control(text).is_some())
        {
            let inner = control(&"<|end|>");
            ends.retain(|&id| Some(id) != inner);
            if self.eot == inner {
                self.eot = None;
            }
        }
        ends.extend(
            self.eos
                .into_iter()
                .chain(self.eot)
                .chain(more.iter().copied()),
        );
        ends.sort_unstable();
        ends.dedup();
        self.end_of_generation = ends.into_iter().map(|id| id as i32).collect();
    }
}
