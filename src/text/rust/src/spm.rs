//! Spm: the merging of SentencePiece BPE models, driven by scores.
//!
//! A model file holds each piece's score but no merge list. The two neighbours whose joined text is
//! the piece of the highest score are merged first, the leftmost of equals, until nothing can be
//! merged. What is left and is no piece is spelled in byte tokens, or is unknown.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ahash::AHashMap;

use crate::byte_level::ByteIds;

pub struct Spm {
    pub pieces: AHashMap<String, (u32, f32)>,
    pub bytes: ByteIds,
    pub unk: Option<u32>,
}

/// A piece of the text in a doubly linked list over indices.
struct Symbol {
    start: usize,
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// A possible merge of two neighbours; stale when either has changed, which `end` shows.
struct Merge {
    score: f32,
    left: usize,
    right: usize,
    start: usize,
    end: usize,
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Merge {}

impl Spm {
    pub fn tokenize(&self, text: &str) -> Vec<u32> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol {
                start,
                end: start + c.len_utf8(),
                previous: i.checked_sub(1),
                next: Some(i + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        let mut queue = BinaryHeap::new();
        for left in 0..symbols.len() {
            self.propose(text, &symbols, Some(left), &mut queue);
        }
        while let Some(merge) = queue.pop() {
            let (left, right) = (&symbols[merge.left], &symbols[merge.right]);
            if left.next != Some(merge.right) || left.start != merge.start || right.end != merge.end
            {
                continue;
            }
            let next = right.next;
            symbols[merge.left].end = merge.end;
            symbols[merge.left].next = next;
            symbols[merge.right].start = merge.end; // empty: every proposal with it is stale
            if let Some(next) = next {
                symbols[next].previous = Some(merge.left);
            }
            self.propose(text, &symbols, symbols[merge.left].previous, &mut queue);
            self.propose(text, &symbols, Some(merge.left), &mut queue);
        }
        self.emit(text, &symbols)
    }

    fn propose(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: Option<usize>,
        queue: &mut BinaryHeap<Merge>,
    ) {
        let Some(left) = left else { return };
        let Some(right) = symbols[left].next else {
            return;
        };
        let (start, end) = (symbols[left].start, symbols[right].end);
        if let Some(&(_, score)) = self.pieces.get(&text[start..end]) {
            queue.push(Merge {
                score,
                left,
                right,
                start,
                end,
            });
        }
    }

    fn emit(&self, text: &str, symbols: &[Symbol]) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut at = if symbols.is_empty() { None } else { Some(0) };
        let mut after_unknown = false;
        while let Some(index) = at {
            let symbol = &symbols[index];
            let piece = &text[symbol.start..symbol.end];
            let mut is_unknown = false;
            if let Some(&(id, _)) = self.pieces.get(piece) {
                ids.push(id);
            } else if !self.bytes.spell(piece, &mut ids) {
                is_unknown = true;
                if !after_unknown {
                    ids.extend(self.unk);
                }
            }
            after_unknown = is_unknown;
            at = symbol.next;
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spm(pieces: &[(&str, f32)]) -> Spm {
        Spm {
            pieces: pieces
                .iter()
                .enumerate()
                .map(|(i, &(text, score))| (text.into(), (i as u32 + 1, score)))
                .collect(),
            bytes: ByteIds::default(),
            unk: Some(0),
        }
    }

    #[test]
    fn the_best_score_merges_first_and_the_leftmost_of_equals() {
        let model = spm(&[
            ("a", 0.0),
            ("b", 0.0),
            ("ab", -2.0),
            ("ba", -1.0),
            ("aa", -1.0),
        ]);
        assert_eq!(model.tokenize("aba"), [1, 4]); // a ba
        assert_eq!(model.tokenize("aaa"), [5, 1]); // aa a
        assert_eq!(model.tokenize(""), [] as [u32; 0]);
    }

    #[test]
    fn neighbouring_unknown_characters_are_one_unknown_token() {
        let model = spm(&[("a", 0.0)]);
        assert_eq!(model.tokenize("xya😀"), [0, 1, 0]);
    }

    #[test]
    fn a_long_run_takes_time_near_to_linear() {
        let model = spm(&[("a", 0.0), ("aa", -1.0), ("aaaa", -2.0)]);
        assert_eq!(model.tokenize(&"a".repeat(1 << 18)).len(), 1 << 16);
    }
}
