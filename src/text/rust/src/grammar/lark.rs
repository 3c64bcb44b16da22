//! Lark grammars from outside: the JSON schemas in them are checked as any other schema is.

use serde_json::{Deserializer, Value};

use super::schema;
use crate::error::{Result, TextError};

const MARK: &str = "%json";

/// The same grammar with its schemas made ready.
pub fn prepare(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(end) = behind_next(MARK, rest) {
        out.push_str(&rest[..end]);
        let line = 1 + text[..text.len() - rest.len() + end].matches('\n').count();
        let place = format!("the grammar, line {line}: {MARK}");
        let mut values = Deserializer::from_str(&rest[end..]).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(e)) => return Err(TextError::input(format!("{place}: {e}"))),
            None => return Err(TextError::input(format!("{place}: a schema is expected"))),
        };
        rest = &rest[end + values.byte_offset()..];
        let prepared = schema::prepare_value(value).map_err(|e| e.context(&place))?;
        out.push_str(&prepared.to_string());
    }
    out.push_str(rest);
    Ok(out)
}

/// Refuses a grammar that refers to another one, as @name.
pub fn check_alone(text: &str) -> Result<()> {
    let Some(end) = behind_next("@", text) else {
        return Ok(());
    };
    let line = 1 + text[..end].matches('\n').count();
    Err(TextError::input(format!(
        "the grammar, line {line}: @ refers to another grammar, and there is none"
    )))
}

/// Behind the next mark that is in no string, expression or comment.
fn behind_next(mark: &str, text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if text[at..].starts_with(mark) {
            return Some(at + mark.len());
        }
        at = match bytes[at] {
            b'"' => after_delimited(bytes, at),
            b'#' => after_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => after_line(bytes, at),
            b'/' => after_delimited(bytes, at),
            _ => at + 1,
        };
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    None
}

fn after_line(bytes: &[u8], start: usize) -> usize {
    let line = bytes[start..].iter().position(|&byte| byte == b'\n');
    line.map_or(bytes.len(), |length| start + length)
}

/// Behind what begins and ends with the byte at `start`.
fn after_delimited(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == bytes[start] => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_in_a_grammar_are_made_ready() {
        let text = "start: \"%json\" a /\\/%json/ // %json\na: %json {\"type\": \"null\"} \"é\"";
        let prepared = prepare(text).unwrap();
        assert_eq!(prepared.matches("x-guidance").count(), 1);
        assert!(prepared.starts_with("start: \"%json\" a /\\/%json/ // %json\na: %json{"));
        assert!(prepared.ends_with("} \"é\""));
    }

    #[test]
    fn a_schema_that_is_refused_is_named_with_its_line() {
        let message = |text: &str| prepare(text).unwrap_err().message().to_owned();
        let refused = message("start: a\na: %json {\"items\": {\"not\": {}}}");
        assert!(
            refused.starts_with("the grammar, line 2: %json: #/items/not: "),
            "{refused}"
        );
        assert!(message("start: %json {").contains("line 1"));
        assert!(message("start: %json").contains("a schema is expected"));
    }

    #[test]
    fn a_reference_to_another_grammar_is_found() {
        assert!(check_alone("start: \"@a\" /@b/ a # @c\na: \"@\" // @").is_ok());
        let refused = check_alone("start: a\na: @b").unwrap_err();
        assert!(
            refused.message().contains("line 2: @"),
            "{}",
            refused.message()
        );
        assert!(check_alone("start: %json {\"const\": \"@\"}").is_ok());
    }
}
