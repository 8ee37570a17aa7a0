//! Files with a part that a later library added: they open, whatever does not need the part is right, and the rest
//! fails with EIO and the name of the part.

mod blosc2;
#[path = "../../support/reseal.rs"]
#[allow(dead_code, reason = "some formats need no mending here")]
mod reseal;
mod zstd;
mod ztensor;
mod zxc;

use std::sync::Arc;

use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{Container, File, Options};
use fzmfs::{Archive, view};

use crate::support::opened::{self, Plain, numbered, read};

/// The container in `bytes`.
fn open(bytes: &[u8]) -> Arc<dyn Container> {
    opened::open(bytes.to_vec(), &Options::default()).unwrap_or_else(|e| panic!("it does not open: {e}"))
}

/// Checks that `error` names `part` and `place`.
fn check_unknown(error: &Error, part: &str, place: &str) {
    let text = error.to_string();
    let said = format!("{part} is unknown to fzmfs ");
    assert!(text.starts_with(&said) && text.contains("; a newer library wrote it ("), "{text}");
    assert!(matches!(error.kind(), Kind::Unknown(_)) && error.errno() == libc::EIO && error.is_lasting(), "{text}");
    assert!(error.what().contains(place) && error.offset().is_some(), "{text}: {place}");
}

/// Size of a file as `stat` gives it.
fn len(file: &File) -> Option<u64> {
    view::known_len(&file.content).or_else(|| Some(view::View::new(&file.content, &Plain).ok()?.len()))
}

/// Compares the numbered directories of `changed` with those of `good`: only `unknown` of the decoded files fail, and
/// none of the stored ones. Sizes are the same.
fn compare(good: &dyn Container, changed: &dyn Container, unknown: &[usize], part: &str, place: &str) {
    for name in ["chunks", "stored"] {
        let (before, after) = (numbered(good, name), numbered(changed, name));
        assert_eq!(before.len(), after.len(), "{name}");
        for (i, (before, after)) in before.into_iter().zip(after).enumerate() {
            let (before, after) = (before.unwrap(), after.unwrap_or_else(|e| panic!("{name} {i}: {e}")));
            assert_eq!(len(&before), len(&after), "{name} {i}");
            match read(&after) {
                Err(e) => {
                    assert!(name == "chunks" && unknown.contains(&i), "{name} {i}: {e}");
                    check_unknown(&e, part, place);
                }
                Ok(bytes) if name == "chunks" => {
                    assert!(!unknown.contains(&i) && bytes == read(&before).unwrap(), "chunk {i}");
                }
                Ok(bytes) => assert_eq!(bytes.len() as u64, len(&before).unwrap(), "stored {i}"),
            }
        }
    }
}

/// The result of `verify` over `bytes`, as in the program.
fn verified(bytes: &[u8]) -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    Archive::open(&path, &fzmfs::Options::default())?.verify(|_| ()).map(drop)
}

/// The file at `path` cannot be read, because of `part` in `place`.
fn check_unreadable(container: &dyn Container, path: &str, part: &str, place: &str) {
    let error = opened::read_at(container, path).err().unwrap_or_else(|| panic!("{path} can be read"));
    check_unknown(&error, part, place);
}

/// Reads part of a file.
fn window(file: &File, at: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xA5; len];
    view::View::new(&file.content, &Plain)?.read(at, &mut bytes, &Plain)?;
    Ok(bytes)
}
