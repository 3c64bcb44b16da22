//! Values as Python writes them: `json.dumps`, `repr` and `str`, which templates were tested with.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The options of `json.dumps` that the tojson filter passes on.
#[derive(Debug, Clone)]
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<usize>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> Self {
        JsonStyle {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }
}

/// `repr` of a float: the shortest digits that read back the same, with an exponent below 1e-4 and
/// from 1e16 on.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes a decimal exponent");
    if value == 0.0 || (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn number(value: &Value, json: bool) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) if json && float.is_nan() => "NaN".to_owned(),
        Ok(float) if json && float.is_infinite() => {
            if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Ok(float) => float_repr(float),
        Err(_) => value.to_string(),
    }
}

fn json_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ensure_ascii && !c.is_ascii()) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => Ok(number(key, true)),
        ValueKind::Bool => Ok(key.is_true().to_string()),
        ValueKind::None => Ok("null".to_owned()),
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson: a key of type {kind}"),
        )),
    }
}

/// Values nested deeper than this are refused, as Python's own recursion limit would.
const DEPTH_MAX: usize = 500;

fn too_deep(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("{what}: the value is nested more than {DEPTH_MAX} levels deep"),
    )
}

struct JsonWriter<'a> {
    style: &'a JsonStyle,
    out: String,
}

impl JsonWriter<'_> {
    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn separator(&mut self, is_first: bool) {
        if is_first {
            return;
        }
        let separator = &self.style.item_separator;
        // With an indent each item has its own line, and no space is left before its end.
        self.out.push_str(if self.style.indent.is_some() {
            separator.trim_end()
        } else {
            separator
        });
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(too_deep("tojson"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value, true)),
            ValueKind::String => {
                json_string(
                    &mut self.out,
                    value.as_str().unwrap_or_default(),
                    self.style.ensure_ascii,
                );
            }
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("tojson: a value of type {kind} is not JSON"),
                ))
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.separator(is_empty);
            is_empty = false;
            self.line(depth + 1);
            self.value(&item, depth + 1)?;
        }
        if !is_empty {
            self.line(depth);
        }
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            entries.push((json_key(&key)?, value.get_item(&key)?));
        }
        if self.style.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.out.push('{');
        for (i, (key, item)) in entries.iter().enumerate() {
            self.separator(i == 0);
            self.line(depth + 1);
            json_string(&mut self.out, key, self.style.ensure_ascii);
            self.out.push_str(&self.style.key_separator);
            self.value(item, depth + 1)?;
        }
        if !entries.is_empty() {
            self.line(depth);
        }
        self.out.push('}');
        Ok(())
    }
}

/// `json.dumps(value)`.
pub fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut writer = JsonWriter {
        style,
        out: String::new(),
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// `str(value)`, except that None is empty: no template means to write "None", and a message's
/// content may be null.
pub fn to_text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        _ => {
            let mut out = String::new();
            repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(too_deep("string"));
    }
    let separate = |out: &mut String, is_first: bool| {
        if !is_first {
            out.push_str(", ");
        }
    };
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value, false)),
        ValueKind::String => out.push_str(&string_repr(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter().into_iter().flatten().enumerate() {
                separate(out, i == 0);
                repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map
            if value
                .as_object()
                .is_none_or(|object| object.repr() == minijinja::value::ObjectRepr::Map) =>
        {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                separate(out, i == 0);
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (2.0, "2.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e300, "1e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_repr(value), text);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_does() {
        assert_eq!(string_repr("a'b"), "\"a'b\"");
        assert_eq!(string_repr("a'\"\n"), "'a\\'\"\\n'");
    }
}
