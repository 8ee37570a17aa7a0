//! The path of a request, decoded to a path of the tree.
#![forbid(unsafe_code)]

/// Longest path, in bytes as sent.
const LONGEST: usize = 16 << 10;

/// Decodes `encoded`, which is relative to the root. `None` for what no entry can have: a segment `.` or `..`, an empty one
/// but the last, an encoded `/` or NUL, an escape that is not one, or bytes that are not UTF-8.
pub(super) fn decoded(encoded: &str) -> Option<String> {
    if encoded.len() > LONGEST {
        return None;
    }
    let mut out = String::with_capacity(encoded.len());
    let path = encoded.strip_suffix('/').unwrap_or(encoded);
    if path.is_empty() {
        return (encoded.len() < 2).then_some(out);
    }
    for (i, segment) in path.split('/').enumerate() {
        let segment = decoded_segment(segment)?;
        if segment.is_empty() || segment == "." || segment == ".." || segment.contains(['/', '\0']) {
            return None;
        }
        if i > 0 {
            out.push('/');
        }
        out.push_str(&segment);
    }
    Some(out)
}

pub(super) fn decoded_segment(segment: &str) -> Option<String> {
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
            out.push(u8::try_from(high? << 4 | low?).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// Encodes a name as a segment of a URL: everything but letters, digits and `-._~` is escaped, and the name of the folder in
/// which the parts of the page are.
pub(super) fn encoded(name: &str) -> String {
    use std::fmt::Write as _;
    if name == "-" {
        return "%2D".to_owned();
    }
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_once_and_never_leads_out() {
        for (sent, want) in [
            ("", Some("")),
            ("a", Some("a")),
            ("a/", Some("a")),
            ("a/b%20c", Some("a/b c")),
            ("%252e%252e/a", Some("%2e%2e/a")),
            ("a%25", Some("a%")),
            ("%C3%BC", Some("\u{fc}")),
            ("a+b", Some("a+b")),
            ("..", None),
            ("a/../b", None),
            ("%2e%2e/a", None),
            ("a/%2E", None),
            ("a//b", None),
            ("/a", None),
            ("//", None),
            ("a%2fb", None),
            ("a%00b", None),
            ("a%", None),
            ("a%2", None),
            ("a%zz", None),
            ("a%+1", None),
            ("%ff", None),
        ] {
            assert_eq!(decoded(sent).as_deref(), want, "{sent}");
        }
        assert_eq!(decoded(&"a".repeat(LONGEST + 1)), None);
    }

    #[test]
    fn an_encoded_name_is_decoded_to_itself() {
        for name in ["a", "-", "a b", "%2F", "\u{fc}#?&<>\"'", "..."] {
            assert_eq!(decoded(&encoded(name)).as_deref(), Some(name));
        }
    }
}
