//! Makes path components from any bytes safe for every file system and shell.
//!
//! Written as `%XX` for each byte: control characters (C0, DEL, C1), characters that embed, override or isolate a
//! writing direction, `%`, `/`, and bytes that are not UTF-8. The empty component becomes `%`, `.` becomes `%2E`, `..`
//! becomes `%2E%2E`. A result over 200 bytes keeps its first 180, followed by `~` and the XXH64 of the original
//! component.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write;

use xxhash_rust::xxh64::xxh64;

/// Maximum length of a component in bytes; suffixes and `~2` are added to it and stay below 255.
const LONGEST: usize = 200;
/// Bytes kept of a longer component.
const KEPT: usize = 180;

/// Whether the safe name of `component` is itself.
pub(crate) fn is_safe(component: &[u8]) -> bool {
    safe(component).as_bytes() == component
}

/// The safe name of `component`.
pub(super) fn safe(component: &[u8]) -> Cow<'_, str> {
    let name = match component {
        b"" => Cow::Borrowed("%"),
        b"." => Cow::Borrowed("%2E"),
        b".." => Cow::Borrowed("%2E%2E"),
        _ => escape(component),
    };
    if name.len() > LONGEST { Cow::Owned(shorten(&name, component)) } else { name }
}

fn escape(component: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(component)
        && text.chars().all(is_kept)
    {
        return Cow::Borrowed(text);
    }
    let mut name = String::with_capacity(component.len());
    for chunk in component.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_kept(c) { name.push(c) } else { hex(&mut name, c.encode_utf8(&mut [0; 4]).as_bytes()) }
        }
        hex(&mut name, chunk.invalid());
    }
    Cow::Owned(name)
}

/// Whether `c` is kept unescaped. Other invisible characters are kept because real writing systems use them.
fn is_kept(c: char) -> bool {
    !c.is_control() && !matches!(c, '%' | '/' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn hex(name: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(name, "%{byte:02X}");
    }
}

/// The first bytes of `name` and the hash of `component`. Does not split a character or a `%XX`.
fn shorten(name: &str, component: &[u8]) -> String {
    let mut end = (0..=KEPT).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    let head = name.get(..end).unwrap_or_default().as_bytes();
    if let Some(back) = head.iter().rev().take(2).position(|&b| b == b'%') {
        end -= back + 1;
    }
    format!("{}~{:016x}", name.get(..end).unwrap_or_default(), xxh64(component, 0))
}

/// The target of a symbolic link: a relative path with the names that its components have in the tree.
pub(super) fn safe_target(target: &[u8]) -> String {
    let name = |component: &[u8]| match component {
        b"" | b"." => Cow::Borrowed("."),
        b".." => Cow::Borrowed(".."),
        _ => Cow::Owned(safe(component).into_owned()),
    };
    target.split(|&byte| byte == b'/').map(name).collect::<Vec<_>>().join("/")
}

/// A path in the tree without a leading or trailing slash: removes empty components and resolves `.` and `..`.
pub(crate) fn normalize(path: &str) -> String {
    let mut components = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => drop(components.pop()),
            _ => components.push(component),
        }
    }
    components.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_safe_and_reversible() {
        let rows: [(&[u8], &str); 22] = [
            (b"output", "output"),
            (b"", "%"),
            (b".", "%2E"),
            (b"..", "%2E%2E"),
            (b"...", "..."),
            (b".hidden", ".hidden"),
            (b"a/b", "a%2Fb"),
            (b"/", "%2F"),
            (b"100%", "100%25"),
            (b"%2E", "%252E"),
            (b"a\0b\x1f\x7f\n", "a%00b%1F%7F%0A"),
            (b"two words", "two words"),
            ("gr\u{fc}\u{df}e \u{1f600}".as_bytes(), "gr\u{fc}\u{df}e \u{1f600}"),
            (b"\xff\xfe", "%FF%FE"),
            (b"a\xe4\xb8", "a%E4%B8"),
            (b"\xed\xa0\x80", "%ED%A0%80"),
            ("\u{80}\u{9b}31m\u{9f}\u{a0}".as_bytes(), "%C2%80%C2%9B31m%C2%9F\u{a0}"),
            (b"a\x9bb", "a%9Bb"),
            ("\u{202a}\u{202e}".as_bytes(), "%E2%80%AA%E2%80%AE"),
            ("\u{2066}x\u{2069}".as_bytes(), "%E2%81%A6x%E2%81%A9"),
            ("\u{2029}\u{202f}\u{2065}\u{206a}".as_bytes(), "\u{2029}\u{202f}\u{2065}\u{206a}"),
            ("\u{61c}\u{200d}\u{200e}\u{feff}".as_bytes(), "\u{61c}\u{200d}\u{200e}\u{feff}"),
        ];
        for (component, want) in rows {
            assert_eq!(safe(component), want);
        }
    }

    #[test]
    fn long_names_are_cut_at_180_bytes_and_told_apart_by_their_hash() {
        let a200 = "a".repeat(200);
        assert_eq!(safe(a200.as_bytes()), a200);
        let a201 = "a".repeat(201);
        let hash = format!("{:016x}", xxh64(a201.as_bytes(), 0));
        assert_eq!(safe(a201.as_bytes()), format!("{}~{hash}", "a".repeat(180)));
        // XXH64 of the empty input, seed 0, as published by its authors.
        assert_eq!(xxh64(b"", 0), 0xEF46_DB37_51D8_E999);
    }

    #[test]
    fn a_cut_splits_neither_an_escape_nor_a_character() {
        let kept = |component: &[u8]| safe(component).rsplit_once('~').unwrap().0.to_owned();
        for (before, kept_bytes) in [(177, 180), (178, 178), (179, 179), (180, 180)] {
            let component = [vec![b'a'; before], vec![0xFF; 10]].concat();
            assert_eq!(kept(&component).len(), kept_bytes, "{before} bytes, then an escape");
        }
        // The escapes of one character may be separated, but no escape may be split.
        let component = [vec![b'a'; 176], vec![0xFF; 10]].concat();
        assert_eq!(kept(&component), format!("{}%FF", "a".repeat(176)));
        for (before, kept_bytes) in [(177, 180), (178, 178), (179, 179)] {
            let component = format!("{}{}", "a".repeat(before), "\u{4e00}".repeat(20));
            assert_eq!(kept(component.as_bytes()).len(), kept_bytes, "{before} bytes, then a character of three");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct("tests/suite/regressions/names.txt"))),
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_bytes_become_one_safe_component(component in prop::collection::vec(any::<u8>(), 0..400)) {
            let name = safe(&component);
            prop_assert!(!name.is_empty() && name.len() <= LONGEST);
            prop_assert!(name != "." && name != "..");
            prop_assert!(!name.bytes().any(|b| b < 0x20 || b == 0x7F || b == b'/'));
        }

        #[test]
        fn any_text_becomes_one_line_that_turns_nothing(component in any::<String>()) {
            let name = safe(component.as_bytes());
            let turns = |c| matches!(u32::from(c), 0x202A..=0x202E | 0x2066..=0x2069);
            prop_assert!(!name.contains(|c: char| c.is_control() || turns(c)));
        }
    }

    #[test]
    fn the_target_of_a_link_has_the_names_of_the_tree() {
        for (target, want) in [
            (&b"a"[..], "a"),
            (b"../100%/b\n", "../100%25/b%0A"),
            (b"a//b/", "a/./b/."),
            (b"...", "..."),
            (b"./a", "./a"),
        ] {
            assert_eq!(safe_target(target), want);
        }
    }

    #[test]
    fn a_path_is_normalized() {
        for (path, want) in [("", ""), ("/", ""), ("a//b/", "a/b"), ("./a/../b/.", "b"), ("../../a", "a")] {
            assert_eq!(normalize(path), want);
        }
    }
}
