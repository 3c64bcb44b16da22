//! The functions, filters, tests and methods that chat templates expect beside Jinja's own.

use minijinja::value::{from_args, Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat;

use crate::python::{to_json, to_text, JsonStyle};

/// Marks an error as the template's own refusal.
#[derive(Debug)]
pub struct Refusal(pub String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

pub fn install(env: &mut Environment<'static>) {
    env.set_formatter(format_value);
    env.set_unknown_method_callback(call_method);
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| to_text(value));
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_iterable);
}

/// Python can walk over strings, lists, mappings, and Jinja's undefined.
fn is_iterable(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), String | Seq | Map | Iterable | Undefined)
}

fn format_value(out: &mut Output, _: &State, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&to_text(value)?),
    };
    written.map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot write"))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

fn tojson(value: &Value, ensure_ascii: Option<bool>, options: Kwargs) -> Result<Value, Error> {
    let mut style = JsonStyle::default();
    if let Some(ascii) = ensure_ascii.or(options.get("ensure_ascii")?) {
        style.ensure_ascii = ascii;
    }
    style.indent = options.get("indent")?;
    if let Some(sort) = options.get("sort_keys")? {
        style.sort_keys = sort;
    }
    if let Some(separators) = options.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = separators.as_slice() else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: separators must be two strings",
            ));
        };
        style.item_separator.clone_from(item);
        style.key_separator.clone_from(key);
    }
    options.assert_all_used()?;
    // No template needs an indent wider than this, and it sizes the output.
    if style.indent.is_some_and(|indent| indent > 64) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson: indent is larger than 64",
        ));
    }
    to_json(value, &style).map(Value::from)
}

/// Python's string methods that pycompat leaves out, then pycompat.
fn call_method(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = string_method(text, method, args)? {
            return Ok(result);
        }
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let list = |parts: &[&str]| Some(parts.iter().map(|&part| Value::from(part)).collect());
    Ok(match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Some(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Some(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (mark,): (&str,) = from_args(args)?;
            match text.split_once(mark) {
                Some((before, after)) => list(&[before, mark, after]),
                None => list(&[text, "", ""]),
            }
        }
        "rpartition" => {
            let (mark,): (&str,) = from_args(args)?;
            match text.rsplit_once(mark) {
                Some((before, after)) => list(&[before, mark, after]),
                None => list(&["", "", text]),
            }
        }
        "rsplit" => {
            let (mark, count): (&str, Option<usize>) = from_args(args)?;
            let mut pieces: Vec<&str> = match count {
                Some(count) => text.rsplitn(count.saturating_add(1), mark).collect(),
                None => text.rsplit(mark).collect(),
            };
            pieces.reverse();
            list(&pieces)
        }
        "isspace" => Some(Value::from(
            !text.is_empty() && text.chars().all(char::is_whitespace),
        )),
        _ => None,
    })
}

/// `datetime.now().strftime(format)` for a given time, in the local time zone.
pub fn strftime(now: i64, format: &str) -> Result<String, Error> {
    let failed = || {
        Error::new(
            ErrorKind::InvalidOperation,
            "strftime_now: bad format or time",
        )
    };
    // A format that gives an empty text cannot be told from a failure: a mark keeps it apart.
    let marked = std::ffi::CString::new(format!("{format}.")).map_err(|_| failed())?;
    let time: libc::time_t = now;
    let mut out = vec![0u8; 256 + 16 * format.len().min(4096)];
    // SAFETY: localtime_r fills `parts` or returns null; strftime writes at most out.len() bytes.
    let length = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&time, &mut parts).is_null() {
            return Err(failed());
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), marked.as_ptr(), &parts)
    };
    let text = out[..length].strip_suffix(b".").ok_or_else(failed)?;
    String::from_utf8(text.to_vec()).map_err(|_| failed())
}
