//! Text of the manifest in error messages and in `info.json`, truncated: it may be as long as the manifest.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

/// Characters of a name that a message shows.
const SHOWN: usize = 80;

/// `name` in quotes, with control characters escaped, truncated to [`SHOWN`] characters.
pub(super) fn quoted(name: &str) -> Quoted<'_> {
    Quoted(name)
}

/// See [`quoted`].
pub(super) struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN).and_then(|(end, _)| self.0.get(..end)) {
            Some(head) => write!(f, "{head:?}..."),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// `text` of at most `most` bytes; if it is longer, its start and a mark.
pub(super) fn truncated(text: &str, most: usize) -> Cow<'_, str> {
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end));
    match end.and_then(|end| text.get(..end)) {
        Some(start) if text.len() > most => Cow::Owned(format!("{start}... ({} bytes)", text.len())),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_truncated_in_a_message() {
        assert_eq!(quoted("a\nb").to_string(), "\"a\\nb\"");
        let exact = "x".repeat(SHOWN);
        assert_eq!(quoted(&exact).to_string(), format!("\"{exact}\""));
        assert_eq!(quoted(&"\u{e9}".repeat(1 << 20)).to_string(), format!("\"{}\"...", "\u{e9}".repeat(SHOWN)));
    }

    #[test]
    fn long_text_is_truncated_between_characters_and_marked() {
        assert_eq!(truncated("dense", 5), "dense");
        assert_eq!(truncated("dense", 4), "dens... (5 bytes)");
        assert_eq!(truncated("\u{e9}\u{e9}", 3), "\u{e9}... (4 bytes)");
    }
}
