//! ShoalTemplate: a chat template, parsed once and rendered as transformers does.

use std::error::Error as _;
use std::io::Write;

use minijinja::value::Value;
use minijinja::{Environment, Error};
use serde_json::Map;

use crate::error::{Result, TextError};
use crate::messages;
use crate::template_functions::{install, strftime, Refusal};
use crate::template_source::rewrite;

const NAME: &str = "chat";

/// Steps that one rendering may take. A turn of a conversation takes hundreds, so this is enough
/// for tens of thousands of turns, and a template that never ends is stopped within seconds.
const STEPS_MAX: u64 = 20_000_000;

/// The largest prompt that a rendering may write: tens of millions of tokens.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// Variable names and texts of special tokens; undefined where there is no text.
pub type SpecialTexts<'a> = [(&'static str, Option<&'a str>); 4];

pub struct ShoalTemplate {
    env: Environment<'static>,
    special: Vec<(&'static str, String)>,
}

impl ShoalTemplate {
    pub fn parse(source: &str, special: &SpecialTexts) -> Result<Self> {
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
        Ok(ShoalTemplate { env, special })
    }

    pub fn render(&self, request: &str, now: i64) -> Result<String> {
        let request = messages::parse(request)?;
        let null_content = messages::has_null_content(&request);
        match self.render_once(&request, now) {
            // Python's string addition fails on None, and a content of null must not fail a
            // request.
            Err(TextError::Input(_)) if null_content => {
                self.render_once(&messages::without_null_content(request), now)
            }
            outcome => outcome,
        }
    }

    fn render_once(&self, request: &Map<String, serde_json::Value>, now: i64) -> Result<String> {
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
        let mut output = BoundedOutput(Vec::new());
        template
            .render_captured_to(variables.into_iter().collect::<Value>(), &mut output)
            .map_err(|e| describe(&e))?;
        String::from_utf8(output.0).map_err(|e| TextError::input(e.to_string()))
    }
}

/// Takes what a template writes, up to the bound.
struct BoundedOutput(Vec<u8>);

impl Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > OUTPUT_BYTES_MAX - self.0.len() {
            return Err(std::io::Error::other(format!(
                "the prompt is larger than {} MiB",
                OUTPUT_BYTES_MAX >> 20
            )));
        }
        self.0.extend_from_slice(bytes);
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
