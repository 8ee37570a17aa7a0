//! Times in options: `90`, `90s`, `5m`, `12h`, `2d`.
#![forbid(unsafe_code)]

/// Parses a number of seconds with an optional suffix s, m, h or d.
///
/// # Errors
/// A message for the user.
pub(super) fn parse(text: &str) -> Result<u32, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let refused = || format!("{text:?} is not a time; write a number of seconds, or one with m, h or d, such as 5m");
    let each = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(refused()),
    };
    let number: u32 = number.parse().map_err(|_| refused())?;
    number.checked_mul(each).ok_or_else(|| format!("{text:?} is longer than 136 years"))
}

/// As [`parse`], from a second to a day: how long a program waits.
///
/// # Errors
/// A message for the user.
pub(super) fn parse_wait(text: &str) -> Result<u32, String> {
    let is_wait = |seconds: &u32| (1..=86_400).contains(seconds);
    parse(text)
        .and_then(|seconds| Some(seconds).filter(is_wait).ok_or_else(|| format!("{text:?} is not from 1s to 1d")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, want) in [("0", 0), ("90", 90), ("90s", 90), ("5m", 300), ("12h", 43_200), ("2d", 172_800)] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
        for text in ["", "m", "-1", "1.5m", "5 m", "5M", "5min", "1e3", "99999999999", "4294967295m"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_wait("1d").is_ok() && parse_wait("0").is_err() && parse_wait("2d").is_err());
    }
}
