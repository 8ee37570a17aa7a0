//! Escapes text from files so that it is safe to print: it cannot move the cursor, or hide or reorder other text.
//!
//! A character is escaped if it is a control, a format character or a line separator (Unicode categories Cc, Cf, Zl,
//! Zp), or if it is invisible by default (`Default_Ignorable_Code_Point`: fillers, variation selectors, tags). Names in
//! the tree have their own rule, in `tree/names.rs`; invisible characters that it keeps are escaped when a name is
//! printed.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

/// First and last of each range of escaped characters, in ascending order.
const HIDDEN: &[(char, char)] = &[
    ('\0', '\u{1F}'),
    ('\u{7F}', '\u{9F}'),
    ('\u{AD}', '\u{AD}'),
    ('\u{34F}', '\u{34F}'),
    ('\u{600}', '\u{605}'),
    ('\u{61C}', '\u{61C}'),
    ('\u{6DD}', '\u{6DD}'),
    ('\u{70F}', '\u{70F}'),
    ('\u{890}', '\u{891}'),
    ('\u{8E2}', '\u{8E2}'),
    ('\u{115F}', '\u{1160}'),
    ('\u{17B4}', '\u{17B5}'),
    ('\u{180B}', '\u{180F}'),
    ('\u{200B}', '\u{200F}'),
    ('\u{2028}', '\u{202E}'),
    ('\u{2060}', '\u{206F}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{FE00}', '\u{FE0F}'),
    ('\u{FEFF}', '\u{FEFF}'),
    ('\u{FFA0}', '\u{FFA0}'),
    ('\u{FFF0}', '\u{FFFB}'),
    ('\u{110BD}', '\u{110BD}'),
    ('\u{110CD}', '\u{110CD}'),
    ('\u{13430}', '\u{1343F}'),
    ('\u{1BCA0}', '\u{1BCA3}'),
    ('\u{1D173}', '\u{1D17A}'),
    ('\u{E0000}', '\u{E0FFF}'),
];

/// Whether `c` is visible and does not affect the text around it.
pub fn is_plain(c: char) -> bool {
    let next = HIDDEN.partition_point(|&(first, _)| first <= c);
    next.checked_sub(1).and_then(|run| HIDDEN.get(run)).is_none_or(|&(_, last)| c > last)
}

/// Escapes `text` for XML and HTML. Characters that are not plain are replaced; use [`escaped`] first to show them.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if !is_plain(c) || matches!(c, '\u{FFFE}' | '\u{FFFF}') => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// A shape in the syntax of the option `shape=`: `512x512`.
pub fn shape<T: ToString>(sizes: &[T]) -> String {
    sizes.iter().map(T::to_string).collect::<Vec<_>>().join("x")
}

/// Escapes `text` for printing on one line, with `\n`, `\t`, `\r` and `\u{9b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, is_plain, |out, c| match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        _ => code(out, format_args!("\\u{{{:x}}}", u32::from(c))),
    })
}

/// Like [`escaped`] for text of several lines: line ends are kept.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// Pretty-prints a JSON document, without a final newline; escapes characters in strings where JSON alone would not.
pub fn json(value: &Value) -> String {
    safe_json(&format!("{value:#}")).into_owned()
}

/// Escapes characters in the strings of the JSON document `text` where JSON alone would not.
fn safe_json(text: &str) -> Cow<'_, str> {
    // Outside of strings there are only ASCII and newlines; inside, serde_json has escaped U+0000 to U+001F.
    let plain = |c: char| c == '\n' || is_plain(c);
    replaced(text, plain, |out, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            code(out, format_args!("\\u{unit:04x}"));
        }
    })
}

/// Like [`json`], in one line.
pub fn json_line(value: &Value) -> String {
    let text = value.to_string();
    safe_json(&text).into_owned()
}

/// Copies `text`, calling `write` for every character that is not `plain`.
fn replaced(text: &str, plain: impl Fn(char) -> bool, mut write: impl FnMut(&mut String, char)) -> Cow<'_, str> {
    if text.chars().all(&plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if plain(c) { out.push(c) } else { write(&mut out, c) }
    }
    Cow::Owned(out)
}

fn code(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(markup("<a b=\"c\">&'\u{0}\u{FFFF}"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn the_ranges_are_sorted_and_disjoint() {
        assert!(HIDDEN.iter().all(|(first, last)| first <= last));
        assert!(HIDDEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        for (text, want) in [
            (
                "plain / 100% \"a\\b\" gr\u{fc}n \u{1f600} \u{3000}",
                "plain / 100% \"a\\b\" gr\u{fc}n \u{1f600} \u{3000}",
            ),
            ("a\u{1b}[2Jb\tc\r\nd", "a\\u{1b}[2Jb\\tc\\r\\nd"),
            ("\0\u{7f}\u{80}\u{9b}\u{9f}\u{a0}", "\\u{0}\\u{7f}\\u{80}\\u{9b}\\u{9f}\u{a0}"),
            ("\u{61c}\u{200e}\u{200f}", "\\u{61c}\\u{200e}\\u{200f}"),
            ("\u{202a}\u{202e}\u{2066}\u{2069}", "\\u{202a}\\u{202e}\\u{2066}\\u{2069}"),
            ("\u{2028}\u{2029}\u{200b}\u{feff}", "\\u{2028}\\u{2029}\\u{200b}\\u{feff}"),
            ("\u{ad}\u{fe0f}\u{3164}\u{e0041}\u{1d173}", "\\u{ad}\\u{fe0f}\\u{3164}\\u{e0041}\\u{1d173}"),
        ] {
            assert_eq!(escaped(text), want);
        }
        assert_eq!(escaped_lines("a\nb\u{9b}\n"), "a\nb\\u{9b}\n");
    }

    #[test]
    fn json_is_escaped_with_its_own_escapes_and_means_the_same() {
        let value = json!({ "a\u{9b}\u{202e}": ["\u{1b}\u{7f}\n", "gr\u{fc}n", { "\u{e0041}": 1 }] });
        let text = json(&value);
        assert_eq!(
            text,
            "{\n  \"a\\u009b\\u202e\": [\n    \"\\u001b\\u007f\\n\",\n    \"gr\u{fc}n\",\n    {\n      \
             \"\\udb40\\udc41\": 1\n    }\n  ]\n}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    /// Checks against the tables of the standard library: it prints assigned characters except controls, format
    /// characters and separators.
    fn standard_prints(c: char) -> bool {
        // It escapes a combining character at the start of a text, hence the `x`.
        let text = format!("x{c}");
        text.escape_debug().count() == 2 || matches!(c, '"' | '\'' | '\\')
    }

    #[test]
    fn characters_that_only_this_module_escapes_are_invisible() {
        let odd: Vec<char> = ('\0'..=char::MAX).filter(|&c| standard_prints(c) && !is_plain(c)).collect();
        let known = |c: char| {
            matches!(c, '\u{34F}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}')
                || matches!(c, '\u{3164}' | '\u{FFA0}' | '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}')
        };
        assert!(odd.iter().all(|&c| known(c)), "{odd:x?}");
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_hidden_character(text in any::<String>()) {
            prop_assert!(escaped(&text).chars().all(|c| is_plain(c) && !c.is_control()));
            prop_assert!(escaped_lines(&text).chars().all(|c| c == '\n' || is_plain(c)));
        }

        #[test]
        fn any_json_is_safe_and_reads_back(key in any::<String>(), text in any::<String>()) {
            let value = json!({ key: [text] });
            let shown = json(&value);
            prop_assert!(shown.chars().all(|c| c == '\n' || is_plain(c)));
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
