//! GBNF, llama.cpp's grammars, as Lark, which the grammar engine reads.
//!
//! Rules that refer to themselves stay rules. Everything else is regular and becomes terminals,
//! joined as far as they reach: the engine's lexer matches terminals as long as it can, so a text
//! that is cut into fewer of them can be read in more ways, and its masks are faster. The language
//! is the grammar's own, or a part of it where two terminals side by side could share a text.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::{Result, TextError};

/// Groups in groups.
const DEPTH_MAX: usize = 24;
/// Of {m,n}.
const REPEAT_MAX: u32 = 10_000;

/// The same grammar in Lark.
pub fn to_lark(text: &str) -> Result<String> {
    let rules = Parser::new(text).rules()?;
    let kinds = Kinds::of(&rules)?;
    let mut writer = Writer {
        kinds: &kinds,
        joined: Vec::new(),
    };
    let mut out = format!("start: {}\n", kinds.name("root"));
    for (name, node) in &rules {
        let body = if kinds.is_regular(name) {
            writer.terminal(node)
        } else {
            writer.rule(node)
        };
        let _ = writeln!(out, "{}: {body}", kinds.name(name));
    }
    for (number, body) in writer.joined.iter().enumerate() {
        let _ = writeln!(out, "{}: {body}", joined_name(number));
    }
    Ok(out)
}

#[derive(Debug)]
enum Node {
    Literal(String),
    /// The regular expression of one character.
    Class(String),
    Reference(String),
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

type Rules = Vec<(String, Node)>;

// ---- Reading ----

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Parser {
            text,
            at: 0,
            depth: 0,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, token: &str) -> bool {
        let is_here = self.rest().starts_with(token);
        if is_here {
            self.at += token.len();
        }
        is_here
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn fail<T>(&self, message: &str) -> Result<T> {
        let line = 1 + self.text[..self.at].matches('\n').count();
        Err(TextError::input(format!(
            "the grammar, line {line}: {message}"
        )))
    }

    /// Spaces and comments; line breaks too where a rule cannot end.
    fn skip(&mut self, over_lines: bool) {
        while let Some(next) = self.peek() {
            match next {
                '#' => {
                    let line = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += line;
                }
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if over_lines => self.at += 1,
                _ => return,
            }
        }
    }

    fn rules(mut self) -> Result<Rules> {
        let mut rules: Rules = Vec::new();
        let mut seen = HashMap::new();
        self.skip(true);
        while self.peek().is_some() {
            let name = self.name()?;
            self.skip(false);
            if !self.take("::=") {
                return self.fail(&format!("\"::=\" must follow the rule's name \"{name}\""));
            }
            self.skip(true);
            let node = self.alternatives(false)?;
            if !matches!(self.peek(), None | Some('\r' | '\n')) {
                return self.fail("this is no part of a rule");
            }
            if seen.insert(name.clone(), ()).is_some() {
                return self.fail(&format!("the rule \"{name}\" is there twice"));
            }
            rules.push((name, node));
            self.skip(true);
        }
        Ok(rules)
    }

    fn name(&mut self) -> Result<String> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if end == 0 {
            return self.fail("a rule's name is expected here");
        }
        self.at += end;
        Ok(rest[..end].to_owned())
    }

    /// A "|" at the beginning of a line goes on with the rule.
    fn takes_bar(&mut self, is_group: bool) -> bool {
        let start = self.at;
        self.skip(true);
        let is_bar = self.take("|");
        if !is_bar && !is_group {
            self.at = start;
            self.skip(false);
        }
        is_bar
    }

    fn alternatives(&mut self, is_group: bool) -> Result<Node> {
        let mut list = vec![self.sequence(is_group)?];
        while self.takes_bar(is_group) {
            self.skip(true);
            list.push(self.sequence(is_group)?);
        }
        Ok(match list.len() {
            1 => list.remove(0),
            _ => Node::Alternatives(list),
        })
    }

    fn sequence(&mut self, is_group: bool) -> Result<Node> {
        let mut list = Vec::new();
        loop {
            self.skip(is_group);
            let Some(next) = self.peek() else { break };
            let node = match next {
                '"' => self.literal()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Node::Class("(?s:.)".to_owned())
                }
                '(' => self.group()?,
                '<' | '!' => {
                    return self.fail("tokens are not served in GBNF: write the grammar in Lark")
                }
                _ if next.is_ascii_alphanumeric() || next == '_' => {
                    // The name of the next rule is behind a line break, which ends this one.
                    Node::Reference(self.name()?)
                }
                _ => break,
            };
            let node = self.repeated(node)?;
            list.push(node);
        }
        Ok(match list.len() {
            1 => list.remove(0),
            _ => Node::Sequence(list),
        })
    }

    fn group(&mut self) -> Result<Node> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fail(&format!(
                "more than {DEPTH_MAX} groups in groups are not served"
            ));
        }
        self.skip(true);
        let node = self.alternatives(true)?;
        self.skip(true);
        if !self.take(")") {
            return self.fail("a \")\" is missing");
        }
        self.depth -= 1;
        Ok(node)
    }

    fn repeated(&mut self, mut node: Node) -> Result<Node> {
        let mut times = 0;
        loop {
            self.skip(false);
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.range()?,
                _ => return Ok(node),
            };
            self.at += 1;
            times += 1;
            if times > DEPTH_MAX {
                return self.fail("too many repetitions of one thing");
            }
            node = Node::Repeat(Box::new(node), least, most);
        }
    }

    /// Of {m}, {m,} or {m,n}; stops before the "}".
    fn range(&mut self) -> Result<(u32, Option<u32>)> {
        let rest = self.rest();
        let parsed = rest.find('}').and_then(|end| {
            let (least, most) = match rest[1..end].split_once(',') {
                Some((least, most)) => (least.trim(), most.trim()),
                None => (rest[1..end].trim(), rest[1..end].trim()),
            };
            let least = if least.is_empty() {
                0
            } else {
                least.parse().ok()?
            };
            let most = if most.is_empty() {
                None
            } else {
                Some(most.parse().ok()?)
            };
            let is_good = least <= most.unwrap_or(least) && most.unwrap_or(least) <= REPEAT_MAX;
            is_good.then_some((end, least, most))
        });
        match parsed {
            Some((end, least, most)) => {
                self.at += end;
                Ok((least, most))
            }
            None => self.fail(&format!(
                "a repetition must be {{m}}, {{m,}} or {{m,n}} of at most {REPEAT_MAX}"
            )),
        }
    }

    fn literal(&mut self) -> Result<Node> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return self.fail("a '\"' is missing"),
                Some('"') => return Ok(Node::Literal(text)),
                Some('\\') => text.push(self.escaped()?),
                Some(other) => text.push(other),
            }
        }
    }

    fn class(&mut self) -> Result<Node> {
        self.at += 1;
        let mut class = if self.take("^") { "[^" } else { "[" }.to_owned();
        let start = class.len();
        while !self.take("]") {
            let first = self.class_char()?;
            let _ = write!(class, "\\u{{{:X}}}", first as u32);
            // A "-" before the end stands for itself.
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                let last = self.class_char()?;
                if last < first {
                    return self.fail("the range of characters is empty");
                }
                let _ = write!(class, "-\\u{{{:X}}}", last as u32);
            }
        }
        if class.len() == start {
            return self.fail("a set of no characters matches nothing");
        }
        Ok(Node::Class(class + "]"))
    }

    fn class_char(&mut self) -> Result<char> {
        match self.next() {
            None => self.fail("a \"]\" is missing"),
            Some('\\') => self.escaped(),
            Some(other) => Ok(other),
        }
    }

    fn escaped(&mut self) -> Result<char> {
        let digits = match self.next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(same @ ('"' | '\\' | '[' | ']' | '-' | '^' | '/')) => return Ok(same),
            _ => return self.fail("an unknown escape"),
        };
        let parsed = self
            .rest()
            .get(..digits)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .and_then(char::from_u32);
        match parsed {
            Some(character) => {
                self.at += digits;
                Ok(character)
            }
            None => self.fail(&format!("the escape must have {digits} hexadecimal digits")),
        }
    }
}

// ---- What is regular ----

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    UnderWay,
    Regular,
    Recursive,
}

struct Kinds<'a> {
    numbers: HashMap<&'a str, usize>,
    marks: Vec<Option<Mark>>,
}

impl<'a> Kinds<'a> {
    fn of(rules: &'a Rules) -> Result<Self> {
        let numbers: HashMap<&str, usize> = rules
            .iter()
            .enumerate()
            .map(|(number, (name, _))| (name.as_str(), number))
            .collect();
        if !numbers.contains_key("root") {
            return Err(TextError::input("the grammar has no rule \"root\""));
        }
        let references = references(rules, &numbers)?;
        let mut kinds = Kinds {
            numbers,
            marks: vec![None; rules.len()],
        };
        for rule in 0..rules.len() {
            kinds.mark(rule, &references);
        }
        Ok(kinds)
    }

    /// Depth first, with a stack of our own: a chain of rules may be long. A rule is recursive when
    /// it leads to one that is under way or recursive.
    fn mark(&mut self, rule: usize, references: &[Vec<usize>]) {
        let mut stack = vec![(rule, 0)];
        while let Some((rule, next)) = stack.pop() {
            if next == 0 && self.marks[rule].is_some() {
                continue;
            }
            self.marks[rule].get_or_insert(Mark::UnderWay);
            if let Some(&target) = references[rule].get(next) {
                stack.push((rule, next + 1));
                match self.marks[target] {
                    None => stack.push((target, 0)),
                    Some(Mark::UnderWay) => self.marks[rule] = Some(Mark::Recursive),
                    Some(_) => {}
                }
                continue;
            }
            let is_recursive = self.marks[rule] == Some(Mark::Recursive)
                || references[rule]
                    .iter()
                    .any(|&target| self.marks[target] == Some(Mark::Recursive));
            let mark = if is_recursive {
                Mark::Recursive
            } else {
                Mark::Regular
            };
            self.marks[rule] = Some(mark);
        }
    }

    fn is_regular(&self, name: &str) -> bool {
        self.marks[self.numbers[name]] == Some(Mark::Regular)
    }

    fn name(&self, name: &str) -> String {
        let number = self.numbers[name];
        if self.is_regular(name) {
            format!("T{number}")
        } else {
            format!("r{number}")
        }
    }

    fn is_regular_node(&self, node: &Node) -> bool {
        match node {
            Node::Literal(_) | Node::Class(_) => true,
            Node::Reference(name) => self.is_regular(name),
            Node::Sequence(list) | Node::Alternatives(list) => {
                list.iter().all(|node| self.is_regular_node(node))
            }
            Node::Repeat(node, ..) => self.is_regular_node(node),
        }
    }
}

fn references(rules: &Rules, numbers: &HashMap<&str, usize>) -> Result<Vec<Vec<usize>>> {
    fn collect<'n>(node: &'n Node, names: &mut Vec<&'n str>) {
        match node {
            Node::Literal(_) | Node::Class(_) => {}
            Node::Reference(name) => names.push(name),
            Node::Sequence(list) | Node::Alternatives(list) => {
                list.iter().for_each(|node| collect(node, names));
            }
            Node::Repeat(node, ..) => collect(node, names),
        }
    }
    rules
        .iter()
        .map(|(rule, node)| {
            let mut names = Vec::new();
            collect(node, &mut names);
            let number = |name: &&str| {
                numbers.get(name).copied().ok_or_else(|| {
                    let message =
                        format!("the rule \"{rule}\" needs \"{name}\", which is not there");
                    TextError::input(format!("the grammar: {message}"))
                })
            };
            names.iter().map(number).collect()
        })
        .collect()
}

// ---- Writing ----

struct Writer<'a> {
    kinds: &'a Kinds<'a>,
    /// Terminals that several parts of a rule were joined into.
    joined: Vec<String>,
}

impl Writer<'_> {
    fn terminal(&self, node: &Node) -> String {
        match node {
            Node::Literal(text) => quoted(text),
            Node::Class(class) => format!("/{class}/"),
            Node::Reference(name) => self.kinds.name(name),
            Node::Sequence(list) => self.terminals(list),
            Node::Alternatives(list) => with(list, " | ", |node| self.terminal(node)),
            Node::Repeat(_, _, Some(0)) => quoted(""),
            Node::Repeat(node, least, most) => {
                format!("({}){}", self.terminal(node), times(*least, *most))
            }
        }
    }

    fn terminals(&self, list: &[Node]) -> String {
        if list.is_empty() {
            return quoted("");
        }
        with(list, " ", |node| match node {
            Node::Alternatives(_) => format!("({})", self.terminal(node)),
            _ => self.terminal(node),
        })
    }

    fn rule(&mut self, node: &Node) -> String {
        if self.kinds.is_regular_node(node) {
            return self.lexeme(std::slice::from_ref(node));
        }
        match node {
            Node::Sequence(list) => {
                let kinds = self.kinds;
                let are_joined =
                    |a: &Node, b: &Node| kinds.is_regular_node(a) && kinds.is_regular_node(b);
                let parts: Vec<String> = list
                    .chunk_by(are_joined)
                    .map(|part| match part {
                        [only] if !kinds.is_regular_node(only) => self.part(only),
                        parts => self.lexeme(parts),
                    })
                    .collect();
                parts.join(" ")
            }
            Node::Alternatives(list) => with(list, " | ", |node| self.rule(node)),
            Node::Repeat(_, _, Some(0)) => quoted(""),
            Node::Repeat(node, least, most) => {
                format!("({}){}", self.rule(node), times(*least, *most))
            }
            Node::Literal(_) | Node::Class(_) | Node::Reference(_) => self.part(node),
        }
    }

    /// What is not regular, as a part of a sequence.
    fn part(&mut self, node: &Node) -> String {
        match node {
            Node::Reference(name) => self.kinds.name(name),
            Node::Alternatives(_) => format!("({})", self.rule(node)),
            _ => self.rule(node),
        }
    }

    /// Regular parts as one terminal of a rule.
    fn lexeme(&mut self, parts: &[Node]) -> String {
        if let [Node::Literal(_) | Node::Class(_) | Node::Reference(_)] = parts {
            return self.terminal(&parts[0]);
        }
        let body = self.terminals(parts);
        let known = self.joined.iter().position(|other| other == &body);
        let number = known.unwrap_or_else(|| {
            self.joined.push(body);
            self.joined.len() - 1
        });
        joined_name(number)
    }
}

fn joined_name(number: usize) -> String {
    format!("J{number}")
}

fn quoted(text: &str) -> String {
    // Lark's strings are JSON's, without DEL.
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7F}', "\\u007f")
}

fn with(list: &[Node], separator: &str, write: impl FnMut(&Node) -> String) -> String {
    let parts: Vec<String> = list.iter().map(write).collect();
    parts.join(separator)
}

fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_grammar_is_one_terminal() {
        let lark =
            to_lark("root ::= word (\" \" word)* # words\nword ::= [a-c]+ | \"x\"\n").unwrap();
        assert_eq!(
            lark,
            "start: T0\nT0: T1 (\" \" T1)*\nT1: (/[\\u{61}-\\u{63}]/)+ | \"x\"\n"
        );
    }

    #[test]
    fn recursion_stays_in_rules_and_the_rest_of_them_is_joined() {
        let text =
            "root ::= value\nvalue ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws | [0-9]+ ws\n\
                    ws ::= [ \\t]*";
        let lark = to_lark(text).unwrap();
        assert_eq!(
            lark,
            "start: r0\nr0: r1\nr1: J0 (r1 (J1 r1)*)? J2 | J3\nT2: (/[\\u{20}\\u{9}]/)*\n\
             J0: \"[\" T2\nJ1: \",\" T2\nJ2: \"]\" T2\nJ3: (/[\\u{30}-\\u{39}]/)+ T2\n"
        );
    }

    #[test]
    fn escapes_sets_and_repetitions_are_read() {
        let text =
            "root ::= \"\\\"\\n\\x41\\u00e9\" [^\\]\\-a-] . {2,3} \"a\"{0} (\n\"b\"\n| \"c\" )?\n";
        let lark = to_lark(text).unwrap();
        assert_eq!(
            lark,
            "start: T0\nT0: \"\\\"\\nAé\" /[^\\u{5D}\\u{2D}\\u{61}\\u{2D}]/ (/(?s:.)/){2,3} \"\" \
             (\"b\" | \"c\")?\n"
        );
        let over_lines = to_lark("root ::=\n  \"a\"\n  | \"b\" |\n \"c\"\r\n").unwrap();
        assert_eq!(over_lines, "start: T0\nT0: \"a\" | \"b\" | \"c\"\n");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let refusal = |text: &str| to_lark(text).unwrap_err().message().to_owned();
        assert!(refusal("a ::= \"b\"").contains("no rule \"root\""));
        assert!(refusal("root ::= a").contains("\"root\" needs \"a\""));
        assert!(refusal("root ::= \"a\"\nroot ::= \"b\"").starts_with("the grammar, line 2"));
        assert!(refusal("root = \"a\"").contains("::="));
        assert!(refusal("root ::= \"a").contains("missing"));
        assert!(refusal("root ::= [a").contains("missing"));
        assert!(refusal("root ::= (\"a\"").contains("missing"));
        assert!(refusal("root ::= []").contains("matches nothing"));
        assert!(refusal("root ::= [z-a]").contains("empty"));
        assert!(refusal("root ::= \"a\"{3,2}").contains("repetition"));
        assert!(refusal("root ::= \"a\"{99999}").contains("repetition"));
        assert!(refusal("root ::= \"\\q\"").contains("escape"));
        assert!(refusal("root ::= \"\\xZZ\"").contains("hexadecimal"));
        assert!(refusal("root ::= <[1]>").contains("Lark"));
        assert!(refusal("root ::= \"a\" )").contains("no part"));
        assert!(refusal(&format!("root ::= {}", "(".repeat(100))).contains("groups"));
    }

    #[test]
    fn a_long_chain_of_rules_takes_no_stack() {
        let mut text = String::from("root ::= r0\n");
        for i in 0..5000 {
            let _ = writeln!(text, "r{i} ::= r{}", i + 1);
        }
        text += "r5000 ::= \"a\" root?\n";
        assert!(to_lark(&text).unwrap().ends_with("r5001: \"a\" (r0)?\n"));
    }
}
