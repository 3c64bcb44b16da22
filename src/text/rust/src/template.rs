//! ShoalTemplate: a chat template, parsed once and rendered as transformers does.

use std::borrow::Cow;
use std::error::Error as _;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use minijinja::value::Value;
use minijinja::{Environment, Error};
use serde_json::Map;

use crate::bounded::{self, Bounds, Exceeded};
use crate::error::{Result, TextError};
use crate::messages;
use crate::template_functions::{install, strftime, Refusal};
use crate::template_source::rewrite;

const NAME: &str = "chat";

/// Steps that one rendering may take. A turn of a conversation takes hundreds, so this is enough
/// for tens of thousands of turns, and a template that never ends is stopped within seconds.
const STEPS_MAX: u64 = 20_000_000;

/// Memory of one rendering: for the template's own values, and for copies of what the request says.
const MEMORY_BYTES: usize = 64 << 20;
const MEMORY_PER_REQUEST_BYTE: usize = 16;

/// The prompt's share of it: 16 MiB at least are millions of tokens.
const OUTPUT_SHARE: usize = 4;

/// Holds values nested as deeply as that memory allows.
const STACK_BYTES: usize = 1 << 30;

/// The steps end a rendering long before; this ends single steps that are slow.
const TIME_MAX: Duration = Duration::from_secs(60);

fn memory_bytes(request_bytes: usize) -> usize {
    MEMORY_BYTES.saturating_add(request_bytes.saturating_mul(MEMORY_PER_REQUEST_BYTE))
}

/// Variable names and texts of special tokens; undefined where there is no text.
pub type SpecialTexts<'a> = [(&'static str, Option<&'a str>); 4];

pub struct ShoalTemplate {
    chat: Arc<Chat>,
    /// A rendering passed its bounds and left a thread behind: one is enough.
    is_spent: AtomicBool,
}

impl ShoalTemplate {
    pub fn parse(source: &str, special: &SpecialTexts) -> Result<Self> {
        Ok(ShoalTemplate {
            chat: Arc::new(Chat::parse(source, special)?),
            is_spent: AtomicBool::new(false),
        })
    }

    pub fn render(&self, request: &str, now: i64) -> Result<String> {
        if self.is_spent.load(Ordering::Relaxed) {
            return Err(TextError::input(
                "chat template: it is not used again, since it took too much memory or time before",
            ));
        }
        let bounds = Bounds {
            memory_bytes: memory_bytes(request.len()),
            stack_bytes: STACK_BYTES,
            time: TIME_MAX,
        };
        let (chat, request) = (self.chat.clone(), request.to_owned());
        let memory_mib = bounds.memory_bytes >> 20;
        let exceeded = match bounded::run(&bounds, move || chat.render(&request, now)) {
            Ok(outcome) => return outcome,
            Err(exceeded) => exceeded,
        };
        if !matches!(exceeded, Exceeded::Thread(_)) {
            self.is_spent.store(true, Ordering::Relaxed);
        }
        Err(TextError::input(match exceeded {
            Exceeded::Memory => format!("chat template: it needs more than {memory_mib} MiB"),
            Exceeded::Time => format!("chat template: it takes more than {} s", TIME_MAX.as_secs()),
            Exceeded::Thread(why) => format!("chat template: cannot start a thread for it: {why}"),
        }))
    }
}

/// The template and its constants.
struct Chat {
    env: Environment<'static>,
    special: Vec<(&'static str, String)>,
}

impl Chat {
    fn parse(source: &str, special: &SpecialTexts) -> Result<Self> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_keep_trailing_newline(false);
        env.set_fuel(Some(STEPS_MAX));
        install(&mut env);
        env.add_template_owned(NAME, rewrite(source).into_owned())
            .map_err(|e| describe(&e))?;
        let special = special
            .iter()
            .filter_map(|&(name, text)| Some((name, text?.to_owned())))
            .collect();
        Ok(Chat { env, special })
    }

    fn render(&self, request: &str, now: i64) -> Result<String> {
        let output_max = memory_bytes(request.len()) / OUTPUT_SHARE;
        let request = messages::parse(request)?;
        let has_null_content = messages::has_null_content(&request);
        let mut first_error = None;
        // Most templates want a call's arguments as a mapping; some add them to a text. And Python's
        // string addition fails on None, but a content of null must not fail a request.
        for fills_contents in [false, true] {
            for has_values in [true, false] {
                if fills_contents && !has_null_content {
                    continue;
                }
                let mut variant = Cow::Borrowed(&request);
                if has_values {
                    match messages::with_argument_values(&request) {
                        Some(values) => variant = Cow::Owned(values),
                        None => continue,
                    }
                }
                if fills_contents {
                    variant = Cow::Owned(messages::without_null_content(&variant));
                }
                match self.render_once(&variant, now, output_max) {
                    Err(TextError::Input(message)) => {
                        first_error.get_or_insert(message);
                    }
                    outcome => return outcome,
                }
            }
        }
        Err(TextError::input(first_error.unwrap_or_default()))
    }

    fn render_once(
        &self,
        request: &Map<String, serde_json::Value>,
        now: i64,
        output_bytes_max: usize,
    ) -> Result<String> {
        let mut variables: Vec<(&str, Value)> = vec![
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(true)),
            (
                "strftime_now",
                Value::from_function(move |format: String| strftime(now, &format)),
            ),
        ];
        variables.extend(
            self.special
                .iter()
                .map(|(name, text)| (*name, Value::from(text.as_str()))),
        );
        // What the request says comes last and wins.
        variables.extend(
            request
                .iter()
                .map(|(name, value)| (name.as_str(), Value::from_serialize(value))),
        );
        let template = self.env.get_template(NAME).map_err(|e| describe(&e))?;
        let mut output = BoundedOutput {
            bytes: Vec::new(),
            bytes_max: output_bytes_max,
        };
        template
            .render_captured_to(variables.into_iter().collect::<Value>(), &mut output)
            .map_err(|e| describe(&e))?;
        String::from_utf8(output.bytes).map_err(|e| TextError::input(e.to_string()))
    }
}

/// Takes what a template writes, up to the bound.
struct BoundedOutput {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(std::io::Error::other(format!(
                "the prompt is larger than {} MiB",
                self.bytes_max >> 20
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The template's own words when it refuses, else what went wrong in which line.
fn describe(error: &Error) -> TextError {
    let mut cause = error.source();
    let mut root = String::new();
    while let Some(source) = cause {
        if let Some(refusal) = source.downcast_ref::<Refusal>() {
            return TextError::Refused(refusal.0.clone());
        }
        root = format!(": {source}");
        cause = source.source();
    }
    let place = error
        .line()
        .map_or(String::new(), |line| format!("line {line}: "));
    let detail = error.detail().map_or_else(
        || error.kind().to_string(),
        |detail| format!("{}: {detail}", error.kind()),
    );
    TextError::input(format!("chat template: {place}{detail}{root}"))
}
