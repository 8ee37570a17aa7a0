//! Names of files: bytes above, UTF-16 here.
//!
//! Names in a directory are single components. The file system takes some names to mean something else, or gives a file
//! that other programs cannot open: such a file is not opened and not made ([`wide`]).
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, OsStr};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::Errno;

/// Names of devices, in every directory, with any extension.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
/// Names of devices with a digit behind.
const NUMBERED: [&str; 2] = ["COM", "LPT"];
/// A name that no file has, for bytes that are not UTF-8.
const NONE: &str = "\0";

/// Names as bytes.
pub trait OsStrExt {
    /// The name `bytes`; of what is not UTF-8, a name that no file has.
    fn from_bytes(bytes: &[u8]) -> &OsStr;

    /// The bytes of the name: UTF-8, if it is valid UTF-16.
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn from_bytes(bytes: &[u8]) -> &OsStr {
        OsStr::new(std::str::from_utf8(bytes).unwrap_or(NONE))
    }

    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// A path below a directory, with `/` between its components.
pub trait Arg {
    /// The path, if it is UTF-8.
    fn text(&self) -> Option<&str>;
}

impl Arg for str {
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

impl Arg for String {
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

impl Arg for OsStr {
    fn text(&self) -> Option<&str> {
        self.to_str()
    }
}

impl Arg for Path {
    fn text(&self) -> Option<&str> {
        self.to_str()
    }
}

impl Arg for PathBuf {
    fn text(&self) -> Option<&str> {
        self.to_str()
    }
}

impl Arg for CStr {
    fn text(&self) -> Option<&str> {
        self.to_str().ok()
    }
}

impl<T: Arg + ?Sized> Arg for &T {
    fn text(&self) -> Option<&str> {
        (**self).text()
    }
}

/// `name` in UTF-16, if it names a file of its directory, and the same one to every program.
///
/// # Errors
/// `EINVAL` for any other name: one with a separator, of a stream of a file, with a character that is not allowed, with
/// a dot or a space at its end, or of a device.
pub(super) fn wide(name: &str) -> Result<Vec<u16>, Errno> {
    if name.is_empty() || name.contains(is_bad) || name.ends_with(['.', ' ']) || is_device(name) {
        return Err(Errno::INVAL);
    }
    Ok(name.encode_utf16().collect())
}

/// Whether no name may have `c`.
fn is_bad(c: char) -> bool {
    u32::from(c) < 32 || r#"\/:*?"<>|"#.contains(c)
}

/// Whether `name` is that of a device.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ');
    let numbered = || {
        // Superscript digits count as digits.
        let digit = |rest: &str| matches!(rest, "0" | "\u{b9}" | "\u{b2}" | "\u{b3}") || "123456789".contains(rest);
        let parts = stem.char_indices().nth(3).and_then(|(at, _)| stem.split_at_checked(at));
        parts.is_some_and(|(device, rest)| {
            NUMBERED.iter().any(|known| known.eq_ignore_ascii_case(device)) && rest.chars().count() == 1 && digit(rest)
        })
    };
    DEVICES.iter().any(|device| device.eq_ignore_ascii_case(stem)) || numbered()
}

/// A path from the bytes of a `file://` URL: `/C:/a` is `C:/a`.
#[expect(clippy::needless_pass_by_value, reason = "on Unix they become the path")]
pub fn path_of_url(bytes: Vec<u8>) -> PathBuf {
    let path = String::from_utf8_lossy(&bytes).into_owned();
    let of_drive = path.strip_prefix('/').filter(|rest| rest.get(1..2) == Some(":"));
    PathBuf::from(of_drive.unwrap_or(&path))
}

/// `path` with `/` between its components. No name has a `\`.
pub fn slashed(path: &Path) -> Cow<'_, Path> {
    match path.to_str().filter(|path| path.contains('\\')) {
        Some(text) => Cow::Owned(PathBuf::from(text.replace('\\', "/"))),
        None => Cow::Borrowed(path),
    }
}

/// The name of a file for an entry of a tree that is called `name`: what Windows takes to mean something else is written
/// as `%XX`, as other such bytes are in names of a tree, where `%` means nothing else.
pub fn name_of_file(name: &str) -> Cow<'_, str> {
    if wide(name).is_ok() || name.is_empty() {
        return Cow::Borrowed(name);
    }
    let mut out = String::new();
    let last = name.len().saturating_sub(1);
    for (at, c) in name.char_indices() {
        // The first character of a device's name, so that it is none.
        let is_bad = is_bad(c) || at == last && matches!(c, '.' | ' ') || at == 0 && is_device(name);
        if is_bad {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{:02X}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            r"a\b",
            r"..\a",
            "a:b",
            "a::$DATA",
            "C:",
            "C:a",
            "a\0",
            "a\n",
            "a?",
            "a*",
            "a<",
            "a|",
            "a\"",
            "a.",
            "a ",
            "a. ",
            "...",
            "con",
            "CON",
            "Nul.txt",
            "aux .b",
            "COM1",
            "lpt9.x",
            "COM\u{b2}",
            "CONIN$",
            "prn.tar.gz",
            r"\\?\C:\a",
            r"\??\C:",
            "com0",
        ] {
            assert!(wide(name).is_err(), "{name:?}");
        }
        for name in ["a", ".a", "a.b", "a b", "console", "COM", "COM10", "com1a", "lpt", "nulla", "\u{e9}", ".a.1.part"]
        {
            assert_eq!(String::from_utf16(&wide(name).unwrap()).unwrap(), name);
        }
    }

    #[test]
    fn every_entry_of_a_tree_has_a_file_and_no_two_the_same() {
        for (name, file) in [
            ("a", "a"),
            (r"..\a", "..%5Ca"),
            ("a:b", "a%3Ab"),
            ("C:", "C%3A"),
            ("nul.txt", "%6Eul.txt"),
            ("a.", "a%2E"),
            ("a. ", "a.%20"),
            ("...", "..%2E"),
            ("a%5Cb", "a%5Cb"),
            ("COM\u{b9}", "%43OM\u{b9}"),
            ("a?*<>|\"b", "a%3F%2A%3C%3E%7C%22b"),
        ] {
            assert_eq!(name_of_file(name), file);
            assert!(wide(file).is_ok(), "{file}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_the_name_of_nothing() {
        assert_eq!(OsStr::from_bytes(b"a\xc3\xa9"), "a\u{e9}");
        assert!(wide(OsStr::from_bytes(b"a\xff").to_str().unwrap()).is_err());
    }

    #[test]
    fn paths_and_urls_are_told_apart_by_the_drive() {
        assert_eq!(path_of_url(b"/C:/a b".to_vec()), Path::new("C:/a b"));
        assert_eq!(path_of_url(b"/a/b".to_vec()), Path::new("/a/b"));
        assert_eq!(slashed(&Path::new("a").join("b")).as_os_str(), "a/b");
    }
}
