//! Sizes in human-readable form: `64M` in options, `1.0 GiB (1073741824 bytes)` in output.
#![forbid(unsafe_code)]

use std::path::PathBuf;

const UNITS: [(&str, u32); 6] = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];

/// Parses a number of bytes with an optional suffix K, M, G or T (powers of 1024; `KiB` and `k` are accepted too).
///
/// # Errors
/// A message for the user.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let refused = || format!("{text:?} is not a size; write a number and K, M or G, such as 512M");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refused())?;
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B').filter(|u| u.is_empty())).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(refused()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is beyond 64 bits"))
}

/// Parses `DIR[:SIZE]`: the part after the last colon is a size only if it can be one.
///
/// # Errors
/// A message for the user.
pub(super) fn parse_dir(text: &str) -> Result<(PathBuf, Option<u64>), String> {
    let (dir, size) = match text.rsplit_once(':').map(|(dir, size)| (dir, parse(size))) {
        Some((dir, Ok(size))) => (dir, Some(size)),
        _ => (text, None),
    };
    if dir.is_empty() { Err("a directory is missing".to_owned()) } else { Ok((dir.into(), size)) }
}

/// The size in its largest unit with one decimal, `1.5 MiB`; below 1 KiB in bytes.
pub(super) fn short(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        Some((name, shift)) if *shift > 0 => format!("{:.1} {name}", bytes as f64 / f64::from(*shift).exp2()),
        _ => format!("{bytes} bytes"),
    }
}

/// As [`short`], with the exact number if it adds information.
pub(super) fn long(bytes: u64) -> String {
    if bytes < 1024 { short(bytes) } else { format!("{} ({bytes} bytes)", short(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, want) in [
            ("0", 0),
            ("4096", 4096),
            ("16K", 16 << 10),
            ("64m", 64 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
            ("3MiB", 3 << 20),
            ("7B", 7),
        ] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "1X", "1KB2", " 1", "1 G", "20000000000G", "1MB", "1iB1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_directory_may_have_a_size_and_colons() {
        for (text, dir, size) in [("/a", "/a", None), ("/a:10G", "/a", Some(10 << 30)), ("/a:b", "/a:b", None)] {
            assert_eq!(parse_dir(text), Ok((dir.into(), size)));
        }
        assert!(parse_dir("").is_err() && parse_dir(":1G").is_err());
    }

    #[test]
    fn sizes_print_in_the_largest_unit() {
        for (bytes, want) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB (1024 bytes)"),
            (1_073_741_824, "1.0 GiB (1073741824 bytes)"),
            (1_600_000, "1.5 MiB (1600000 bytes)"),
            (u64::MAX, "16384.0 PiB (18446744073709551615 bytes)"),
        ] {
            assert_eq!(long(bytes), want);
        }
    }
}
