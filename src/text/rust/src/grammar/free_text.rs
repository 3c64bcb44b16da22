//! FreeText: an answer that no grammar binds yet, and the trigger that it is searched for.

use llguidance::toktrie::TokenId;

use crate::error::{Result, TextError};
use crate::table::{Kind, TokenTable};

const WHITE_SPACE: &[u8] = b" \t\r\n";

/// Text in which the trigger does not count, such as a thought. Without an opening mark there is
/// none but what the answer starts inside of.
#[derive(Debug, Clone, Default)]
pub struct Quiet<'a> {
    pub open: &'a str,
    /// Any of them ends it.
    pub closes: Vec<&'a str>,
    /// It may begin anywhere and again; else at the answer's start, behind white space.
    pub is_anywhere: bool,
    pub starts_inside: bool,
}

/// What free text is searched for.
pub struct Watch {
    trigger: Vec<u8>,
    open: Vec<u8>,
    closes: Vec<Vec<u8>>,
    first: Place,
    is_anywhere: bool,
    /// Tokens that may complete the trigger and have something behind it.
    pub tailed: Vec<TokenId>,
    /// One of them holds a whole trigger.
    is_trigger_in_a_token: bool,
}

impl Watch {
    pub fn new(trigger: &str, quiet: &Quiet, table: &TokenTable) -> Result<Self> {
        let has_quiet = !quiet.open.is_empty() || quiet.starts_inside;
        let is_closed = !quiet.closes.is_empty() && quiet.closes.iter().all(|c| !c.is_empty());
        if has_quiet != is_closed {
            return Err(TextError::input(
                "text without a trigger needs marks on both sides",
            ));
        }
        let first = if quiet.starts_inside {
            Place::Quiet
        } else if quiet.is_anywhere || quiet.open.is_empty() {
            Place::Loud
        } else {
            Place::Start
        };
        let mut watch = Watch {
            trigger: trigger.as_bytes().to_vec(),
            open: quiet.open.as_bytes().to_vec(),
            closes: quiet.closes.iter().map(|c| c.as_bytes().to_vec()).collect(),
            first,
            is_anywhere: quiet.is_anywhere && !quiet.open.is_empty(),
            tailed: Vec::new(),
            is_trigger_in_a_token: false,
        };
        watch.find_tailed(table);
        Ok(watch)
    }

    fn find_tailed(&mut self, table: &TokenTable) {
        for id in 0..table.len() as i32 {
            let bytes = self.bytes(table, id);
            let holds_trigger =
                find(bytes, &self.trigger).is_some_and(|at| at + self.trigger.len() < bytes.len());
            let ends_trigger = (1..self.trigger.len()).any(|begun| {
                let rest = &self.trigger[begun..];
                rest.len() < bytes.len() && bytes.starts_with(rest)
            });
            if holds_trigger || ends_trigger {
                self.tailed.push(id as TokenId);
            }
            self.is_trigger_in_a_token |= holds_trigger;
        }
    }

    /// What a token adds to the text: a control token is none, unless it is (of) a mark.
    pub fn bytes<'a>(&self, table: &'a TokenTable, id: i32) -> &'a [u8] {
        let bytes = table.bytes(id);
        let is_of_a_mark = || {
            let mut marks = self.closes.iter().chain([&self.trigger, &self.open]);
            !bytes.is_empty() && marks.any(|mark| find(mark, bytes).is_some())
        };
        if table.kind(id) == Some(Kind::Control) && !is_of_a_mark() {
            return &[];
        }
        bytes
    }

    fn mark_bytes_max(&self) -> usize {
        let closes = self.closes.iter().map(Vec::len).max().unwrap_or(0);
        closes.max(self.trigger.len()).max(self.open.len())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing but white space and what may become the mark that opens a quiet text.
    Start,
    Quiet,
    Loud,
}

#[derive(Clone)]
pub struct FreeText {
    place: Place,
    /// The last bytes, too few to be a mark.
    tail: Vec<u8>,
}

impl FreeText {
    pub fn new(watch: &Watch) -> Self {
        FreeText {
            place: watch.first,
            tail: Vec::new(),
        }
    }

    /// Behind what the grammar bound.
    pub fn again() -> Self {
        FreeText {
            place: Place::Loud,
            tail: Vec::new(),
        }
    }

    /// The next token may complete the trigger and have something behind it.
    pub fn may_complete(&self, watch: &Watch) -> bool {
        let is_begun = || {
            self.place != Place::Quiet
                && (1..watch.trigger.len()).any(|n| self.tail.ends_with(&watch.trigger[..n]))
        };
        !watch.tailed.is_empty() && (watch.is_trigger_in_a_token || is_begun())
    }

    /// Goes on; what is behind the trigger, once it is whole.
    pub fn push(&mut self, watch: &Watch, bytes: &[u8]) -> Option<Vec<u8>> {
        self.tail.extend_from_slice(bytes);
        loop {
            let passed = match self.place {
                Place::Start => self.start(watch),
                Place::Quiet => self.end_quiet(watch),
                Place::Loud => {
                    let trigger = find(&self.tail, &watch.trigger);
                    let open = watch
                        .is_anywhere
                        .then(|| find(&self.tail, &watch.open))
                        .flatten();
                    match (trigger, open) {
                        (Some(at), open) if open.is_none_or(|open| at < open) => {
                            return Some(self.tail.split_off(at + watch.trigger.len()));
                        }
                        (_, Some(at)) => Some((at + watch.open.len(), Place::Quiet)),
                        _ => None,
                    }
                }
            };
            let Some((bytes, place)) = passed else {
                let kept = watch.mark_bytes_max() - 1;
                self.tail.drain(..self.tail.len().saturating_sub(kept));
                return None;
            };
            self.tail.drain(..bytes);
            self.place = place;
        }
    }

    /// The bytes that are passed, and where the text is then.
    fn start(&self, watch: &Watch) -> Option<(usize, Place)> {
        let is_text = |byte| !WHITE_SPACE.contains(byte);
        let begin = self.tail.iter().position(is_text)?;
        let text = &self.tail[begin..];
        if text.starts_with(&watch.open) {
            Some((begin + watch.open.len(), Place::Quiet))
        } else if watch.open.starts_with(text) {
            None
        } else {
            Some((0, Place::Loud))
        }
    }

    fn end_quiet(&self, watch: &Watch) -> Option<(usize, Place)> {
        let ends = |close: &Vec<u8>| find(&self.tail, close).map(|at| at + close.len());
        let first = watch.closes.iter().filter_map(ends).min()?;
        Some((first, Place::Loud))
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TokenTable {
        let tokens = ["<", ">", ">x", "<go>", "a<go>b", "<go", "go>", "<end>"];
        let tokens: Vec<String> = tokens.iter().map(|text| text.to_string()).collect();
        let mut kinds = vec![Kind::Normal; tokens.len()];
        kinds[7] = Kind::Control;
        TokenTable::build(&tokens, kinds, |text, _| text.as_bytes().to_vec())
    }

    fn thought() -> Quiet<'static> {
        Quiet {
            open: "<t>",
            closes: vec!["</t>"],
            ..Quiet::default()
        }
    }

    /// Where the trigger is whole, for the text whole and byte by byte.
    fn triggers_at(quiet: &Quiet, text: &str) -> Option<usize> {
        let watch = Watch::new("<go>", quiet, &table()).unwrap();
        let behind = FreeText::new(&watch).push(&watch, text.as_bytes());
        let at = behind.map(|rest| text.len() - rest.len());
        let mut free = FreeText::new(&watch);
        let mut bytes = text.as_bytes().iter();
        let each = bytes.position(|&byte| free.push(&watch, &[byte]).is_some());
        assert_eq!(at, each.map(|index| index + 1), "{text}");
        at
    }

    #[test]
    fn a_trigger_counts_wherever_it_is() {
        for text in ["<go>", "a <go>", "<g<go>", "<t><go>"] {
            assert_eq!(triggers_at(&Quiet::default(), text), Some(text.len()));
        }
        assert_eq!(triggers_at(&Quiet::default(), "<go"), None);
    }

    #[test]
    fn a_trigger_does_not_count_in_a_thought_that_the_answer_begins_with() {
        let quiet = thought();
        assert_eq!(triggers_at(&quiet, "<t><go></t>"), None);
        assert_eq!(triggers_at(&quiet, "\n <t>a<go>b</t"), None);
        assert_eq!(triggers_at(&quiet, "<t></t><go> and <go>"), Some(11));
        assert_eq!(triggers_at(&quiet, "a <t><go>"), Some(9));
        assert_eq!(triggers_at(&quiet, "<go>"), Some(4));
        assert_eq!(
            triggers_at(&quiet, &format!("{}<go>", " ".repeat(99))),
            Some(103)
        );
        assert_eq!(triggers_at(&quiet, "<t></t><t><go>"), Some(14));
        let inside = Quiet {
            starts_inside: true,
            ..quiet
        };
        assert_eq!(triggers_at(&inside, "<go></t><go>"), Some(12));
    }

    #[test]
    fn a_trigger_does_not_count_in_quiet_text_anywhere() {
        let quiet = Quiet {
            closes: vec!["</t>", "<go"],
            is_anywhere: true,
            ..thought()
        };
        assert_eq!(triggers_at(&quiet, "a<t>b</t><t><go></t>"), None);
        assert_eq!(triggers_at(&quiet, "a<t>b</t><go>"), Some(13));
        assert_eq!(triggers_at(&quiet, "a<t>b<go<go>"), Some(12));
    }

    #[test]
    fn tokens_with_something_behind_the_trigger_are_known() {
        let watch = Watch::new("<go>", &Quiet::default(), &table()).unwrap();
        assert_eq!(watch.tailed, [2, 4]);
        assert!(watch.is_trigger_in_a_token);
        // A control token is no text, unless it is a mark.
        assert_eq!(watch.bytes(&table(), 7), b"");
        let watch = Watch::new("<end>", &Quiet::default(), &table()).unwrap();
        assert_eq!(watch.bytes(&table(), 7), b"<end>");
    }

    #[test]
    fn marks_come_in_pairs() {
        let open = Quiet {
            closes: Vec::new(),
            ..thought()
        };
        assert!(Watch::new("<go>", &open, &table()).is_err());
        let empty = Quiet {
            closes: vec![""],
            ..thought()
        };
        assert!(Watch::new("<go>", &empty, &table()).is_err());
    }
}
