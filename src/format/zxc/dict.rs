//! Dictionaries: content that precedes every block, and an optional shared Huffman table.
//!
//! Reference: section 8.1 and 11.9 of the ZXC reference.
//!
//! A container names its dictionary only by id. The user gives a `.zxd` file (with a table) or the bare content; the id
//! decides which of them a file is, and whether its table is used.
//!
//! Checked: header hash and id of a `.zxd` file, and its code lengths.
//! Limits: content is 1 to 65535 bytes; larger files cannot be ZXC dictionaries and are skipped.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::source::Source;

use super::hash::{fold32, hash16, rapidhash};
use super::header::{Version, check};
use super::lengths::{self, Lengths};

const MAGIC: [u8; 4] = [0xC7, 0xD1, 0xB0, 0x9C];

/// A loaded dictionary.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// The content that precedes every block: 1 to 65535 bytes.
    pub(super) content: Vec<u8>,
    /// The shared Huffman code.
    pub(super) lengths: Option<Lengths>,
}

/// Finds the dictionary with the id `id` among the files given by the user.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] if none of `paths` has this id, and if a file cannot be read or is a corrupt `.zxd`
/// file.
pub(super) fn find(paths: &[PathBuf], id: u32, version: Version) -> Result<Dictionary> {
    for path in paths {
        if let Some(found) = load(path, id, version).map_err(|e| e.within(path.display()))? {
            return Ok(found);
        }
    }
    Err(Error::unsupported(
        match paths {
            [] => format!("the dictionary with the id {id:#010x} is needed; name its file with -o dict=FILE"),
            _ => format!("none of the dictionaries given has the id {id:#010x}"),
        },
        "dict_id",
    ))
}

fn load(path: &Path, id: u32, version: Version) -> Result<Option<Dictionary>> {
    let source = Source::open(path)?;
    let most = to_u64(usize::from(u16::MAX)).saturating_add(16).saturating_add(to_u64(lengths::BYTES));
    let bytes = source.get(FileOffset(0), source.len().min(most), "dictionary")?;
    let (content, table) = match bytes.starts_with(&MAGIC) {
        true => zxd(&bytes)?,
        false if (1..=u64::from(u16::MAX)).contains(&source.len()) => (bytes.as_slice(), None),
        false => return Ok(None),
    };
    let content_id = fold32(rapidhash(content, 0));
    if let Some(table) = table
        && fold32(rapidhash(table, content_id.into())) == id
    {
        // A table of zeros means no table.
        let lengths = if table.iter().all(|&b| b == 0) {
            None
        } else {
            let fault = |f: super::fault::Fault| f.error(FileOffset(to_u64(content.len()).saturating_add(16)));
            Some(Lengths::parse(table, version.code_bits()).map_err(fault)?)
        };
        return Ok(Some(Dictionary { content: content.to_vec(), lengths }));
    }
    Ok((content_id == id).then(|| Dictionary { content: content.to_vec(), lengths: None }))
}

/// Parses and checks a `.zxd` file; returns its content and table.
fn zxd(bytes: &[u8]) -> Result<(&[u8], Option<&[u8; lengths::BYTES]>)> {
    let mut cur = Cursor::new(bytes, FileOffset(0));
    let mut header = cur.clone().array::<16>("dictionary header")?;
    cur.array::<4>("dictionary magic word")?;
    // Dictionary version 1 goes with format version 6, version 2 with format version 9.
    let version = match cur.u8("dictionary version")? {
        1 => Version::V6,
        2 => Version::V9,
        n => return Err(Error::unsupported(format!("ZXC dictionary version {n}"), "dictionary version")),
    };
    cur.u8("dictionary flags")?;
    let size = cur.u16_le("dictionary content size")?;
    let id = cur.u32_le("dict_id")?;
    cur.u16_le("reserved")?;
    let hash = cur.u16_le("dictionary header checksum")?;
    if size == 0 {
        return Err(Error::corrupt("no content", "dictionary content size").at(FileOffset(6)));
    }
    let content = cur.take(size.into(), "dictionary content")?;
    let Some(table) = cur.rest().first_chunk() else {
        let (need, have) = (to_u64(lengths::BYTES), to_u64(cur.len()));
        return Err(Error::new(Kind::Truncated { need, have }, "dictionary table").at(cur.at()));
    };
    header[12..].fill(0);
    check(hash.into(), hash16(version, header).into(), "dictionary header checksum", FileOffset(14))?;
    let computed = fold32(rapidhash(table, fold32(rapidhash(content, 0)).into()));
    check(id.into(), computed.into(), "dict_id", FileOffset(8))?;
    Ok((content, Some(table)))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// The example of the reference: "hello", with codes of two bits for e, h, l and o.
    fn example() -> Vec<u8> {
        let mut bytes = vec![0xC7, 0xD1, 0xB0, 0x9C, 1, 0, 5, 0, 0x34, 0x07, 0xFC, 0x0C, 0, 0, 0x2D, 0x74];
        bytes.extend_from_slice(b"hello");
        let mut table = [0; lengths::BYTES];
        (table[0x32], table[0x34], table[0x36], table[0x37]) = (0x20, 0x02, 0x02, 0x20);
        bytes.extend_from_slice(&table);
        bytes
    }

    #[test]
    fn the_example_is_found_by_either_of_its_ids() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (zxd, raw) = (path("d.zxd", &example()), path("raw", b"hello"));
        let other = path("zstd", &vec![0x37; 70_000]);
        for (paths, id, table) in [
            (vec![other.clone(), zxd.clone()], 0x0CFC_0734, true),
            (vec![zxd.clone()], 0x9A72_0F17, false),
            (vec![other.clone(), raw.clone()], 0x9A72_0F17, false),
        ] {
            let found = find(&paths, id, Version::V7).unwrap();
            assert_eq!((found.content.as_slice(), found.lengths.is_some()), (&b"hello"[..], table));
        }
        for (paths, id) in [(vec![], 0x0CFC_0734), (vec![raw], 0x0CFC_0734), (vec![zxd], 1), (vec![other], 1)] {
            assert!(matches!(find(&paths, id, Version::V7).unwrap_err().kind(), Kind::Unsupported(_)));
        }
    }

    #[test]
    fn a_broken_dictionary_file_is_an_error_that_names_the_field() {
        for (at, value, what) in [
            (4, 3, "dictionary version"),
            (6, 0, "dictionary content size"),
            (7, 1, "dictionary content"),
            (12, 1, "fine"),
            (14, 0, "dictionary header checksum"),
            (16, b'j', "dict_id"),
            (30, 1, "dict_id"),
        ] {
            let mut bytes = example();
            bytes[at] = value;
            assert_eq!(zxd(&bytes).err().map_or("fine".into(), |e| e.what().to_owned()), what, "byte {at}");
        }
        assert_eq!(zxd(&example()[..148]).unwrap_err().what(), "dictionary table");
        assert_eq!(zxd(&example()[..10]).unwrap_err().what(), "dictionary header");
    }
}
