//! The splitting rules behind the names in `tokenizer.ggml.pre`.
//!
//! A model file names the rules by which a text is cut before merging and does not hold them. Each
//! entry states the rules of the tokenizer.json that the named model was published with, in
//! Oniguruma's syntax, since that is the engine which the reference runs them on.

use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::error::{Result, TextError};

/// How the text is cut, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// GPT-2's own expression, applied together with the byte alphabet.
    Gpt2,
    /// Each numeric character alone.
    Digits,
    /// Matches of an expression are cut out.
    Regex(&'static str),
}

struct Rules {
    names: &'static [&'static str],
    cuts: &'static [Cut],
    /// Unicode composition before anything else.
    nfc: bool,
    /// A cut that is a token as a whole is that token, whatever the merges say.
    ignore_merges: bool,
    /// BOS goes first when the file does not say.
    add_bos: bool,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Runs of Han characters stay apart from other letters.
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";

const RULES: &[Rules] = &[
    Rules {
        names: &["default", "gpt-2", "gpt2", "phi-2", "mpt", "olmo"],
        cuts: &[Cut::Gpt2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Rules {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        cuts: &[Cut::Digits, Cut::Gpt2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Rules {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
        ],
        cuts: &[Cut::Regex(LLAMA3)],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Rules {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        cuts: &[Cut::Regex(LLAMA3)],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Rules {
        names: &["qwen2"],
        cuts: &[Cut::Regex(QWEN2)],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Rules {
        names: &["qwen35"],
        cuts: &[Cut::Regex(QWEN35)],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Rules {
        names: &["deepseek-r1-qwen"],
        cuts: &[Cut::Regex(QWEN2)],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Rules {
        names: &["deepseek-llm"],
        cuts: &[
            Cut::Regex(r"[\r\n]"),
            // Latin, Greek, Cyrillic and the other alphabets with two cases.
            Cut::Regex(concat!(
                r"\s?[",
                r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}",
                r"\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}",
                r"\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}",
                r"\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}",
                r"\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}",
                r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}",
                r"\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}",
                r"\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}",
                r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}",
                r"\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}",
                r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}",
                r"\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}",
                r"\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}",
                r"\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}",
                r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}",
                r"\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}",
                r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
                r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
                r"]+"
            )),
            Cut::Regex(
                "\\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+",
            ),
            Cut::Regex(r"\s+$"),
            Cut::Regex(CJK),
            Cut::Digits,
        ],
        nfc: false,
        ignore_merges: false,
        add_bos: true,
    },
    Rules {
        names: &["deepseek-coder"],
        cuts: &[
            Cut::Regex(r"[\r\n]"),
            Cut::Regex(r"\s?\p{L}+"),
            Cut::Regex(r"\s?\p{P}+"),
            Cut::Regex(CJK),
            Cut::Digits,
        ],
        nfc: false,
        ignore_merges: false,
        add_bos: true,
    },
    Rules {
        names: &["deepseek-v3"],
        cuts: &[
            Cut::Regex(r"\p{N}{1,3}"),
            Cut::Regex(r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"),
            Cut::Regex(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
            ),
        ],
        nfc: false,
        ignore_merges: false,
        add_bos: true,
    },
    Rules {
        names: &["gpt-4o", "llama4"],
        cuts: &[Cut::Regex(GPT4O)],
        nfc: false,
        ignore_merges: true,
        add_bos: false,
    },
    Rules {
        names: &["kimi-k2"],
        cuts: &[Cut::Regex(KIMI)],
        nfc: false,
        ignore_merges: true,
        add_bos: false,
    },
    Rules {
        names: &["tekken"],
        cuts: &[Cut::Regex(TEKKEN)],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
];

/// Rules ready to run.
pub struct PreTokenization {
    pub normalizer: Option<NormalizerWrapper>,
    pub pre_tokenizer: PreTokenizerWrapper,
    pub ignore_merges: bool,
    pub add_bos: bool,
}

fn build(cut: Cut) -> Result<Option<PreTokenizerWrapper>> {
    Ok(match cut {
        Cut::Gpt2 => None, // ByteLevel applies it
        Cut::Digits => Some(Digits::new(true).into()),
        Cut::Regex(pattern) => {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|e| TextError::input(format!("splitting rule: {e}")))?;
            Some(split.into())
        }
    })
}

/// The rules of a name; an unknown name is an error that lists the known ones.
pub fn find(name: &str) -> Result<PreTokenization> {
    let Some(rules) = RULES.iter().find(|rules| rules.names.contains(&name)) else {
        let known: Vec<&str> = RULES
            .iter()
            .flat_map(|rules| rules.names.iter().copied())
            .collect();
        return Err(TextError::input(format!(
            "tokenizer.ggml.pre is \"{name}\", whose splitting rules are unknown here; known are {}",
            known.join(", ")
        )));
    };
    let mut parts = Vec::new();
    for &cut in rules.cuts {
        parts.extend(build(cut)?);
    }
    parts.push(ByteLevel::new(false, true, rules.cuts.contains(&Cut::Gpt2)).into());
    Ok(PreTokenization {
        normalizer: rules.nfc.then(|| NFC.into()),
        pre_tokenizer: Sequence::new(parts).into(),
        ignore_merges: rules.ignore_merges,
        add_bos: rules.add_bos,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_level::ByteLevel as Bytes;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    fn cuts(name: &str, text: &str) -> Vec<String> {
        let rules = find(name).unwrap();
        let mut pieces = PreTokenizedString::from(text);
        rules.pre_tokenizer.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        let decode = |spelled: &str| String::from_utf8(Bytes::new().decode(spelled)).unwrap();
        splits
            .into_iter()
            .map(|(spelled, _, _)| decode(spelled))
            .collect()
    }

    #[test]
    fn every_set_of_rules_compiles_and_loses_nothing() {
        let text = "It's 1234½ ok!\r\n\n  世界 ñandú\u{85}x\t\tEND ";
        for rules in RULES {
            for name in rules.names {
                assert_eq!(cuts(name, text).concat(), text, "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_refused_and_the_known_ones_are_listed() {
        let message = find("no-such").err().unwrap().to_string();
        assert!(
            message.contains("no-such") && message.contains("deepseek-v3"),
            "{message}"
        );
    }

    #[test]
    fn digits_go_alone_or_by_three_as_the_model_does() {
        assert_eq!(
            cuts("smollm", "a 1234½"),
            ["a", " ", "1", "2", "3", "4", "½"]
        );
        assert_eq!(cuts("qwen2", "1234"), ["1", "2", "3", "4"]);
        assert_eq!(cuts("llama-bpe", "1234"), ["123", "4"]);
        assert_eq!(cuts("deepseek-v3", "1234"), ["123", "4"]);
        assert_eq!(cuts("gpt-2", "a 1234"), ["a", " 1234"]);
    }

    #[test]
    fn c24_kimi_keeps_han_apart_and_takes_contractions_in_any_case() {
        let text = "“Hello,” 世界世世世界世界——I'm ChatGPT. CAN'T wait 'til 2026.世界世界";
        let expected = [
            "“Hello",
            ",”",
            " ",
            "世界世世世界世界",
            "——",
            "I'm",
            " Chat",
            "GPT",
            ".",
            " CAN'T",
            " wait",
            " '",
            "til",
            " ",
            "202",
            "6",
            ".",
            "世界世界",
        ];
        assert_eq!(cuts("kimi-k2", text), expected);
    }

    #[test]
    fn c28_white_space_is_the_unicode_set() {
        for name in [
            "gpt-2",
            "llama-bpe",
            "qwen2",
            "deepseek-v3",
            "gpt-4o",
            "kimi-k2",
        ] {
            for space in [
                "\u{85}", "\u{a0}", "\u{1680}", "\u{2003}", "\u{2028}", "\u{202f}", "\u{205f}",
                "\u{3000}",
            ] {
                let text = format!(".{space}.");
                assert_eq!(cuts(name, &text), [".", space, "."], "{name} {space:?}");
            }
        }
    }
}
