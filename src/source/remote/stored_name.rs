//! The names of files in `remote_cache`.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

/// The name of the file with the bytes in `range` of `version`.
pub(super) fn name(version: u64, range: &Range<u64>) -> String {
    format!("{version:016x}-{:x}-{:x}", range.start, range.end)
}

/// The version and the range in the name of a file.
pub(super) fn parse(name: &str) -> Option<(u64, Range<u64>)> {
    let mut parts = name.splitn(3, '-').map(|part| u64::from_str_radix(part, 16).ok());
    let (version, start, end) = (parts.next()??, parts.next()??, parts.next()??);
    (start < end && name.find('-') == Some(16)).then_some((version, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_in_the_file_and_other_names_nothing() {
        assert_eq!(parse(&name(7, &(16..u64::MAX))), Some((7, 16..u64::MAX)));
        for other in ["", "version", "part-1-2", "7-0-1", "0000000000000007-1-1", "0000000000000007-0-1-2"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
