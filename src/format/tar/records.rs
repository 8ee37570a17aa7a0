//! The records of pax: `LENGTH KEY=VALUE` and a line feed, in the content of a member before the one that they are
//! about.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// The keys and values of `records`, up to the first malformed one.
pub(super) fn records(records: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let space = rest.iter().position(|&byte| byte == b' ')?;
        let len: usize = decimal(rest.get(..space)?).and_then(|len| len.try_into().ok())?;
        let record = rest.get(space.checked_add(1)?..len.checked_sub(1)?)?;
        // A value may contain anything, also line feeds.
        rest = rest.get(len..).filter(|_| rest.get(len.wrapping_sub(1)) == Some(&b'\n'))?;
        let equals = record.iter().position(|&byte| byte == b'=')?;
        Some((record.get(..equals)?, record.get(equals.checked_add(1)?..)?))
    })
}

/// A number of decimal digits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// Seconds and nanoseconds since 1970: decimal, with a fraction, and maybe negative.
pub(super) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    let nanos = fraction.iter().chain([b'0'; 9].iter()).take(9).try_fold(0_u32, |sum, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit < 10)?;
        sum.checked_mul(10)?.checked_add(digit.into())
    })?;
    Some(match (is_negative, nanos) {
        (false, nanos) => (whole, nanos),
        (true, 0) => (whole.checked_neg()?, 0),
        // Nanoseconds count forward.
        (true, nanos) => (whole.checked_neg()?.checked_sub(1)?, 1_000_000_000_u32.checked_sub(nanos)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_at_the_first_malformed_one() {
        for (text, want) in [
            (&b""[..], &[][..]),
            (b"11 path=ab\n", &[("path", "ab")]),
            (b"13 path=a\nb=\n8 size=1\n10 size=2\n", &[("path", "a\nb=")]),
            (b"11 path=ab\n9 mtime=1", &[("path", "ab")]),
            (b"11 path=ab\n 9 x=1", &[("path", "ab")]),
            (b"99999999999999999999 path=ab\n", &[]),
            (b"3 =\n", &[]),
            (b"4 =\n", &[("", "")]),
            (b"0 =\n", &[]),
            (b"11 path_ab\n", &[]),
        ] {
            let found: Vec<_> = records(text).collect();
            let want: Vec<_> = want.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
            assert_eq!(found, want, "{text:?}");
        }
    }

    #[test]
    fn times_have_fractions_and_a_sign() {
        for (text, want) in [
            ("12", Some((12, 0))),
            ("12.5", Some((12, 500_000_000))),
            ("12.0000000019", Some((12, 1))),
            ("-1", Some((-1, 0))),
            ("-1.25", Some((-2, 750_000_000))),
            ("", None),
            ("1.x", None),
            ("1e9", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(time(text.as_bytes()), want, "{text}");
        }
    }
}
