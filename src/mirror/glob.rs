//! Patterns of file names, as in a shell: `*`, `?` and `[a-z]`.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

/// A pattern of file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<GlobPart>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobPart {
    /// One certain byte.
    Byte(u8),
    /// Any byte.
    Any,
    /// Any number of bytes.
    Star,
    /// A byte in one of these ranges; or in none of them.
    Class { ranges: Vec<(u8, u8)>, negated: bool },
}

impl FromStr for Glob {
    type Err = String;

    /// Parses a pattern.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            let part = match (first, rest) {
                (b'*', _) => GlobPart::Star,
                (b'?', _) => GlobPart::Any,
                (b'\\', [escaped, after @ ..]) => {
                    rest = after;
                    GlobPart::Byte(*escaped)
                }
                (b'[', _) => {
                    let (class, after) = class(rest).ok_or_else(|| format!("{text}: [ without ]"))?;
                    rest = after;
                    class
                }
                (b'/', _) => return Err(format!("{text}: a pattern of file names contains no /")),
                (byte, _) => GlobPart::Byte(*byte),
            };
            // Two stars match the same as one, more slowly.
            if part != GlobPart::Star || parts.last() != Some(&GlobPart::Star) {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return Err("expected a pattern of file names, such as *.dat".to_owned());
        }
        Ok(Self { parts, text: text.to_owned() })
    }
}

/// Parses the rest of a class after `[`; returns also the rest after `]`.
fn class(bytes: &[u8]) -> Option<(GlobPart, &[u8])> {
    let negated = matches!(bytes, [b'!' | b'^', ..]);
    let mut rest = if negated { bytes.get(1..)? } else { bytes };
    let mut ranges = Vec::new();
    loop {
        rest = match rest {
            // A `]` at the beginning stands for itself.
            [b']', after @ ..] if !ranges.is_empty() => return Some((GlobPart::Class { ranges, negated }, after)),
            [first, b'-', last, after @ ..] if *last != b']' => {
                ranges.push((*first, *last));
                after
            }
            [byte, after @ ..] => {
                ranges.push((*byte, *byte));
                after
            }
            [] => return None,
        };
    }
}

impl Glob {
    /// Whether the pattern matches the whole of `name`. Takes at most the product of both lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to resume if the rest after the last star does not match: the part after it, and one byte later.
        let mut retry = None;
        loop {
            match (self.parts.get(part), name.get(at)) {
                (Some(GlobPart::Star), _) => {
                    retry = Some((part + 1, at + 1));
                    part += 1;
                }
                (Some(wanted), Some(&byte)) if wanted.matches(byte) => (part, at) = (part + 1, at + 1),
                (None, None) => return true,
                _ => match retry {
                    Some((after, from)) if from <= name.len() => {
                        (part, at) = (after, from);
                        retry = Some((after, from + 1));
                    }
                    _ => return false,
                },
            }
        }
    }
}

impl GlobPart {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Byte(wanted) => byte == *wanted,
            Self::Any => true,
            Self::Star => false,
            Self::Class { ranges, negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&byte)) != *negated
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, yes, no) in [
            ("*.dat", &["a.dat", ".dat", "a.dat.dat"][..], &["a.data", "dat", ""][..]),
            ("*", &["", "a"], &[]),
            ("a?c", &["abc", "a*c"], &["ac", "abbc"]),
            ("a*b*c", &["abc", "axbxc", "abcbc"], &["ab", "acb"]),
            ("[a-c]1", &["a1", "c1"], &["d1", "-1", "1"]),
            ("[!a-c]1", &["d1"], &["a1"]),
            ("[]x]", &["]", "x"], &["a"]),
            ("[a-]", &["a", "-"], &["b"]),
            (r"\*", &["*"], &["a"]),
            ("a**b", &["ab", "axb"], &["a"]),
        ] {
            let glob: Glob = pattern.parse().unwrap();
            for (names, is_match) in [(yes, true), (no, false)] {
                for name in names {
                    assert_eq!(glob.matches(name.as_bytes()), is_match, "{pattern} {name}");
                }
            }
        }
        for wrong in ["", "[", "[a", "[]", "a/b"] {
            assert!(wrong.parse::<Glob>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_does_not_take_for_ever() {
        let glob: Glob = "*a".repeat(100).parse().unwrap();
        assert!(!glob.matches(&[b'a'; 99]) && glob.matches(&[b'a'; 5000]) && !glob.matches(&[b'b'; 5000]));
    }
}
