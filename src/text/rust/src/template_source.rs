//! Rewrites what the template engine does not know into what it does.
//!
//! `{% generation %} ... {% endgeneration %}` marks the assistant's text for training; for
//! rendering it is a block with a scope of its own, which is what `{% with %}` is. Only the word
//! inside the tag is replaced, so dashes, line numbers and everything else stay.

use std::borrow::Cow;

/// The end of the expression, statement or comment that starts at `open`, after its closing mark;
/// text in quotes does not close it. None when it is never closed: the engine will say so.
fn end_of_tag(source: &str, open: usize, close: &str, quotes: bool) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut at = open;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') if quotes => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            _ if bytes[at..].starts_with(close.as_bytes()) => return Some(at + close.len()),
            _ => at += 1,
        }
    }
    None
}

/// The word of a statement and where it is: `  - generation ` gives "generation".
fn statement_word(source: &str, open: usize, end: usize) -> (usize, &str) {
    let inner = &source[open..end];
    let word = inner.trim_start_matches(['-', '+', ' ', '\t', '\r', '\n']);
    let start = open + inner.len() - word.len();
    let length = word
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(word.len());
    (start, &word[..length])
}

pub fn rewrite(source: &str) -> Cow<'_, str> {
    let mut result = String::new();
    let mut copied = 0;
    let mut at = 0;
    let mut raw = false;
    while let Some(offset) = source[at..].find('{') {
        let open = at + offset;
        let after = open + 2;
        let end = match source.as_bytes().get(open + 1) {
            Some(b'#') if !raw => end_of_tag(source, after, "#}", false),
            Some(b'{') if !raw => end_of_tag(source, after, "}}", true),
            Some(b'%') => end_of_tag(source, after, "%}", !raw),
            _ => {
                at = open + 1;
                continue;
            }
        };
        let Some(end) = end else { break };
        if source.as_bytes()[open + 1] == b'%' {
            let (start, word) = statement_word(source, after, end);
            let replacement = match word {
                "endraw" => {
                    raw = false;
                    None
                }
                _ if raw => None,
                "raw" => {
                    raw = true;
                    None
                }
                "generation" => Some("with"),
                "endgeneration" => Some("endwith"),
                _ => None,
            };
            if let Some(replacement) = replacement {
                result.push_str(&source[copied..start]);
                result.push_str(replacement);
                copied = start + word.len();
            }
            if raw && word != "raw" {
                at = after;
                continue;
            }
        }
        at = end;
    }
    if copied == 0 {
        return Cow::Borrowed(source);
    }
    result.push_str(&source[copied..]);
    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn only_the_word_of_a_generation_tag_changes() {
        assert_eq!(
            rewrite("{%- generation -%}a{%endgeneration%}"),
            "{%- with -%}a{%endwith%}"
        );
        assert_eq!(
            rewrite("{%\n  generation\n%}\n{% endgeneration +%}"),
            "{%\n  with\n%}\n{% endwith +%}"
        );
    }

    #[test]
    fn the_same_words_elsewhere_stay() {
        for source in [
            "",
            "generation {",
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{% set x = '%}{% generation %}' %}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% if generation %}{% endif %}",
            "{% generations %}",
            "{% generation",
        ] {
            assert_eq!(rewrite(source), source);
        }
        assert_eq!(
            rewrite("{% raw %}'{% endraw %}{% generation %}"),
            "{% raw %}'{% endraw %}{% with %}"
        );
    }
}
