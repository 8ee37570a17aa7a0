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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::source::Source;

use super::hash::{fold32, hash16, rapidhash};
use super::header::check;
use super::huffman_lengths::{self, HuffmanLengths};
use super::version::ZxcVersion;

const MAGIC: [u8; 4] = [0xC7, 0xD1, 0xB0, 0x9C];

/// A loaded dictionary.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// The content that precedes every block: 1 to 65535 bytes.
    pub(super) content: Vec<u8>,
    /// The shared Huffman code.
    pub(super) lengths: Option<HuffmanLengths>,
}

/// The dictionary of a frame.
#[derive(Debug, Clone)]
pub(super) enum FrameDictionary {
    /// The header names none.
    None,
    Found(Arc<Dictionary>),
    /// The header names `id`, at `at`, and no file has it; whether `any` files were given.
    Missing {
        id: u32,
        at: FileOffset,
        any: bool,
    },
}

impl FrameDictionary {
    /// The dictionary, if one is named.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] if it is missing.
    pub(super) fn get(&self) -> Result<Option<&Arc<Dictionary>>> {
        match self {
            Self::None => Ok(None),
            Self::Found(dictionary) => Ok(Some(dictionary)),
            Self::Missing { id, at, any } => {
                let which = match any {
                    false => {
                        format!("the dictionary with the id {id:#010x} is needed; name its file with -o dict=FILE")
                    }
                    true => format!("none of the dictionaries given has the id {id:#010x}"),
                };
                Err(Error::unsupported(which, "dict_id").at(*at))
            }
        }
    }
}

/// The dictionary files given by the user. Each is read once, when a frame names a dictionary that no earlier file has.
#[derive(Debug)]
pub(super) struct Library<'a> {
    paths: std::slice::Iter<'a, PathBuf>,
    files: Vec<DictFile>,
    /// By id, and by the maximum length of a code.
    found: BTreeMap<(u32, u32), Arc<Dictionary>>,
}

/// A file that can be a ZXC dictionary.
#[derive(Debug)]
struct DictFile {
    path: PathBuf,
    content: Vec<u8>,
    /// Id of the content alone.
    id: u32,
    /// The table, and the id of the content with it.
    table: Option<(u32, [u8; huffman_lengths::BYTES])>,
}

impl<'a> Library<'a> {
    /// The files at `paths`; reads nothing.
    pub(super) fn new(paths: &'a [PathBuf]) -> Self {
        Self { paths: paths.iter(), files: Vec::new(), found: BTreeMap::new() }
    }

    /// The dictionary with the id `id`, for a frame of `version` that names it at `at`.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is a corrupt `.zxd` file.
    pub(super) fn find(&mut self, id: u32, at: FileOffset, version: ZxcVersion) -> Result<FrameDictionary> {
        let key = (id, version.code_bits());
        if let Some(found) = self.found.get(&key) {
            return Ok(FrameDictionary::Found(Arc::clone(found)));
        }
        let Some(dictionary) = self.search(id, version)? else {
            return Ok(FrameDictionary::Missing { id, at, any: !self.files.is_empty() });
        };
        let dictionary = Arc::new(dictionary);
        self.found.insert(key, Arc::clone(&dictionary));
        Ok(FrameDictionary::Found(dictionary))
    }

    /// Searches the files read before, then reads others.
    fn search(&mut self, id: u32, version: ZxcVersion) -> Result<Option<Dictionary>> {
        for file in &self.files {
            if let Some(found) = file.dictionary(id, version)? {
                return Ok(Some(found));
            }
        }
        for path in self.paths.by_ref() {
            let Some(file) = DictFile::load(path).map_err(|e| e.within(path.display()))? else { continue };
            let found = file.dictionary(id, version)?;
            self.files.push(file);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

impl DictFile {
    /// Reads the file at `path`; `None` if it cannot be a ZXC dictionary.
    fn load(path: &Path) -> Result<Option<Self>> {
        let source = Source::open(path)?;
        let most = to_u64(usize::from(u16::MAX)).saturating_add(16).saturating_add(to_u64(huffman_lengths::BYTES));
        let bytes = source.get(FileOffset(0), source.len().min(most), "dictionary")?;
        let (content, table) = match bytes.starts_with(&MAGIC) {
            true => zxd(&bytes)?,
            false if (1..=u64::from(u16::MAX)).contains(&source.len()) => (bytes.as_slice(), None),
            false => return Ok(None),
        };
        let id = fold32(rapidhash(content, 0));
        let table = table.map(|table| (fold32(rapidhash(table, id.into())), *table));
        Ok(Some(Self { path: path.to_path_buf(), content: content.to_vec(), id, table }))
    }

    /// The dictionary, if `id` is one of its ids: with its table, or without.
    fn dictionary(&self, id: u32, version: ZxcVersion) -> Result<Option<Dictionary>> {
        let lengths = match &self.table {
            // A table of zeros means no table.
            Some((with_table, table)) if *with_table == id && table.iter().any(|&b| b != 0) => {
                let at = FileOffset(to_u64(self.content.len()).saturating_add(16));
                let parsed = HuffmanLengths::parse(table, version.code_bits());
                Some(parsed.map_err(|f| f.error(at).within(self.path.display()))?)
            }
            Some((with_table, _)) if *with_table == id => None,
            _ if self.id == id => None,
            _ => return Ok(None),
        };
        Ok(Some(Dictionary { content: self.content.clone(), lengths }))
    }
}

/// Parses and checks a `.zxd` file; returns its content and table.
fn zxd(bytes: &[u8]) -> Result<(&[u8], Option<&[u8; huffman_lengths::BYTES]>)> {
    let mut cur = Cursor::new(bytes, FileOffset(0));
    let mut header = cur.clone().array::<16>("dictionary header")?;
    cur.array::<4>("dictionary magic word")?;
    // Dictionary version 1 goes with format version 6, version 2 with format version 9.
    let version = match cur.u8("dictionary version")? {
        1 => ZxcVersion::V6,
        2 => ZxcVersion::V9,
        n => return Err(Error::unknown(format!("ZXC dictionary version {n}"), "dictionary version")),
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
        let (need, have) = (to_u64(huffman_lengths::BYTES), to_u64(cur.len()));
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
        let mut table = [0; huffman_lengths::BYTES];
        (table[0x32], table[0x34], table[0x36], table[0x37]) = (0x20, 0x02, 0x02, 0x20);
        bytes.extend_from_slice(&table);
        bytes
    }

    #[test]
    fn the_example_is_found_by_either_id() {
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
            let found = Library::new(&paths).find(id, FileOffset(7), ZxcVersion::V7).unwrap();
            let found = found.get().unwrap().unwrap();
            assert_eq!((found.content.as_slice(), found.lengths.is_some()), (&b"hello"[..], table));
        }
        for (paths, id) in [(vec![], 0x0CFC_0734), (vec![raw], 0x0CFC_0734), (vec![zxd], 1), (vec![other], 1)] {
            let missing = Library::new(&paths).find(id, FileOffset(7), ZxcVersion::V7).unwrap();
            assert!(matches!(missing.get().unwrap_err().kind(), Kind::Unsupported(_)));
        }
    }

    #[test]
    fn a_dictionary_is_read_and_kept_once_however_many_frames_name_it() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("d.zxd")];
        std::fs::write(&paths[0], example()).unwrap();
        let mut library = Library::new(&paths);
        let mut first = None;
        for id in [0x0CFC_0734, 0x9A72_0F17, 7, 0x0CFC_0734, 0x9A72_0F17] {
            match library.find(id, FileOffset(7), ZxcVersion::V9).unwrap() {
                FrameDictionary::Found(found) if id == 0x0CFC_0734 => {
                    assert!(Arc::ptr_eq(first.get_or_insert_with(|| Arc::clone(&found)), &found));
                }
                FrameDictionary::Found(_) => {}
                missing => assert_eq!((id, missing.get().is_err()), (7, true)),
            }
            // Another read would fail.
            drop(std::fs::remove_file(&paths[0]));
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
