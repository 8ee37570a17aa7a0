//! Names in error messages, truncated: a name may be as long as the manifest.
#![forbid(unsafe_code)]

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_in_a_message() {
        assert_eq!(quoted("a\nb").to_string(), "\"a\\nb\"");
        let exact = "x".repeat(SHOWN);
        assert_eq!(quoted(&exact).to_string(), format!("\"{exact}\""));
        assert_eq!(quoted(&"\u{e9}".repeat(1 << 20)).to_string(), format!("\"{}\"...", "\u{e9}".repeat(SHOWN)));
    }
}
