//! ShoalGrammarCompiler: what an answer must be, from its source to the engine's parser.
//!
//! Sources come from outside. Their size and nesting are checked, and they are compiled on a thread
//! with bounds on stack, memory and time, behind the engine's own on steps and states.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::TokEnv;
use llguidance::{Matcher, ParserFactory};

use super::constraint::{ShoalConstraint, Start};
use super::free_text::{Quiet, Watch};
use super::gbnf;
use super::lark;
use super::schema;
use super::token_trie::TokenTrie;
use crate::bounded::{self, Bounds, Exceeded};
use crate::error::{Result, TextError};
use crate::pipeline::ShoalTokenizer;

/// Bytes of a regular expression on its own, and of a Lark or GBNF grammar without its schemas. A
/// rule may lead to the next one all along: that much of it fits the stack below many times.
const REGEX_BYTES_MAX: usize = 32 << 10;
const GRAMMAR_BYTES_MAX: usize = 64 << 10;
const MARK_BYTES_MAX: usize = 256;
const PARTS_MAX: usize = 256;

/// The engine's own bounds end a compilation within a second; these are for what they miss.
const BOUNDS: Bounds = Bounds {
    memory_bytes: 256 << 20,
    stack_bytes: 512 << 20,
    time: Duration::from_secs(20),
};
/// Compilations that passed those bounds, each of which left a sleeping thread and its memory.
const LOST_MAX: usize = 4;

/// States of one answer's lexer, of 1 to 2 KiB each.
const LEXER_STATES_MAX: usize = 40_000;
/// Symbols of a grammar.
const SYMBOLS_MAX: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    JsonSchema,
    Regex,
    Lark,
    Gbnf,
}

pub struct Part<'a> {
    pub name: &'a str,
    pub kind: Kind,
    pub text: &'a str,
}

pub struct Source<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub parts: Vec<Part<'a>>,
    pub trigger: &'a str,
    pub quiet: Quiet<'a>,
    pub repeats: bool,
}

pub struct ShoalGrammarCompiler {
    tokenizer: Arc<ShoalTokenizer>,
    factory: Arc<ParserFactory>,
    lost: AtomicUsize,
}

pub struct ShoalGrammar(Arc<Start>);

impl ShoalGrammarCompiler {
    pub fn new(tokenizer: Arc<ShoalTokenizer>) -> Result<Self> {
        let trie = TokenTrie::build(tokenizer.clone())?;
        Ok(ShoalGrammarCompiler {
            tokenizer,
            factory: Arc::new(make_factory(&trie)?),
            lost: AtomicUsize::new(0),
        })
    }

    pub fn compile(&self, source: &Source) -> Result<ShoalGrammar> {
        if self.lost.load(Ordering::Relaxed) >= LOST_MAX {
            return Err(TextError::input(
                "grammars are not compiled any more: too many took more time or memory than is \
                 allowed",
            ));
        }
        let quiet = &source.quiet;
        for mark in quiet.closes.iter().chain([&source.trigger, &quiet.open]) {
            check_size("mark", mark.len(), MARK_BYTES_MAX)?;
        }
        let has_trigger = !source.trigger.is_empty();
        let watch = has_trigger
            .then(|| Watch::new(source.trigger, quiet, &self.tokenizer.table))
            .transpose()?;
        let grammar = top_level(source)?;
        let factory = self.factory.clone();
        let matcher = match bounded::run(&BOUNDS, move || compile(&factory, grammar)) {
            Ok(outcome) => outcome?,
            Err(exceeded) => return Err(self.exceeded(&exceeded)),
        };
        Ok(ShoalGrammar(Arc::new(Start {
            matcher: Mutex::new(matcher),
            tokenizer: self.tokenizer.clone(),
            trie: self.factory.tok_env().clone(),
            watch,
            repeats: source.repeats,
        })))
    }

    fn exceeded(&self, exceeded: &Exceeded) -> TextError {
        if !matches!(exceeded, Exceeded::Thread(_)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        TextError::input(match exceeded {
            Exceeded::Memory => format!(
                "the grammar is too complex: it needs more than {} MiB",
                BOUNDS.memory_bytes >> 20
            ),
            Exceeded::Time => format!(
                "the grammar is too complex: it takes more than {} s",
                BOUNDS.time.as_secs()
            ),
            Exceeded::Thread(why) => format!("cannot start a thread for the grammar: {why}"),
        })
    }
}

impl ShoalGrammar {
    pub fn start(&self) -> ShoalConstraint {
        ShoalConstraint::new(self.0.clone())
    }
}

fn make_factory(trie: &TokEnv) -> Result<ParserFactory> {
    let mut factory = ParserFactory::new_simple(trie).map_err(refusal)?;
    // Grammars and answers are in no log.
    factory.quiet();
    let limits: &mut ParserLimits = factory.limits_mut();
    limits.verbose_errors = false;
    limits.max_lexer_states = LEXER_STATES_MAX;
    limits.max_grammar_size = SYMBOLS_MAX;
    Ok(factory)
}

fn check_size(what: &str, size: usize, most: usize) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    Err(TextError::input(format!(
        "the {what} has {size} bytes: at most {most} are served"
    )))
}

fn top_level(source: &Source) -> Result<TopLevelGrammar> {
    let is_schema = |part: &&Part| part.kind == Kind::JsonSchema;
    let schemas = source.parts.iter().filter(is_schema);
    let bytes = schemas.map(|part| part.text.len()).sum();
    check_size("JSON schemas", bytes, schema::SCHEMA_BYTES_MAX)?;
    if source.parts.len() > PARTS_MAX {
        return Err(TextError::input(format!(
            "there are {} named grammars: at most {PARTS_MAX} are served",
            source.parts.len()
        )));
    }
    let mut grammar = TopLevelGrammar::from_grammar(one_grammar(source.kind, source.text, None)?);
    for part in &source.parts {
        let refused = |error: TextError| error.context(part.name);
        let one = one_grammar(part.kind, part.text, Some(part.name)).map_err(refused)?;
        grammar.grammars.push(one);
    }
    Ok(grammar)
}

/// name: of a part, which cannot refer to others.
fn one_grammar(kind: Kind, text: &str, name: Option<&str>) -> Result<GrammarWithLexer> {
    let mut grammar = match kind {
        Kind::JsonSchema => GrammarWithLexer::from_json_schema(schema::prepare(text)?),
        Kind::Regex => {
            check_size("regular expression", text.len(), REGEX_BYTES_MAX)?;
            GrammarWithLexer::from_regex(without_anchors(text))
        }
        Kind::Lark => {
            check_size("grammar", text.len(), GRAMMAR_BYTES_MAX)?;
            if name.is_some() {
                lark::check_alone(text)?;
            }
            GrammarWithLexer::from_lark(lark::prepare(text)?)
        }
        Kind::Gbnf => {
            check_size("grammar", text.len(), GRAMMAR_BYTES_MAX)?;
            GrammarWithLexer::from_lark(gbnf::to_lark(text)?)
        }
    };
    // A name that the engine gives of its own could be referred to.
    grammar.name = name.map(str::to_owned);
    Ok(grammar)
}

/// "^" and "$" at the ends of an expression for the whole answer, which the engine has no word for.
fn without_anchors(text: &str) -> &str {
    let text = text.strip_prefix('^').unwrap_or(text);
    let Some(inner) = text.strip_suffix('$') else {
        return text;
    };
    let escapes = inner.len() - inner.trim_end_matches('\\').len();
    if escapes % 2 == 0 {
        inner
    } else {
        text
    }
}

fn compile(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Matcher> {
    let parser = factory.create_parser(grammar).map_err(refusal)?;
    let matcher = Matcher::new(Ok(parser));
    // A grammar that nothing fits is found here, and not when the model is to answer.
    let mut probe = matcher.deep_clone();
    if !probe.is_stopped() {
        probe.compute_mask().map_err(|_| {
            TextError::input(
                "no answer fits the grammar, or it is too complex, or the vocabulary cannot spell \
                 its beginning",
            )
        })?;
    }
    Ok(matcher)
}

/// The engine's message without what it says about itself.
pub fn refusal(error: impl std::fmt::Display) -> TextError {
    let message = error.to_string();
    let end = message.find("\n<").unwrap_or(message.len());
    TextError::input(message[..end].trim_end())
}

/// A lock that nobody can have left broken: what it guards is only copied.
pub fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
