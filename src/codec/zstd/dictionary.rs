//! Dictionaries given by the user, selected by the id in the frame header.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use zstd::zstd_safe::DDict;

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::once::Once;
use crate::source::Source;

use super::header::Header;
use super::v07;

/// Maximum size of a dictionary file.
const MAX: u64 = 128 << 20;

/// One dictionary file.
pub(super) struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
    old: Once<Arc<v07::V07Dictionary>>,
    ready: OnceLock<Option<DDict<'static>>>,
}

impl Dictionary {
    fn new(bytes: Vec<u8>) -> Self {
        let id = match bytes.split_first_chunk::<8>() {
            Some(([0x37, 0xA4, 0x30, 0xEC, id @ ..], _)) => u32::from_le_bytes(*id),
            _ => 0,
        };
        Self { id, bytes, old: Once::new(), ready: OnceLock::new() }
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Parsed for libzstd, once for all frames.
    ///
    /// # Errors
    /// Fails if libzstd rejects it.
    pub(super) fn ready(&self) -> Result<&DDict<'static>> {
        let ready = self.ready.get_or_init(|| DDict::try_create(&self.bytes)).as_ref();
        ready.ok_or_else(|| Error::corrupt("invalid entropy tables", "dictionary"))
    }

    /// Parsed for frames of 0.7, once.
    ///
    /// # Errors
    /// Fails if its tables are malformed.
    pub(super) fn v07(&self) -> Result<&Arc<v07::V07Dictionary>> {
        let parse = || v07::V07Dictionary::parse(&self.bytes).map(Arc::new).map_err(|e| e.within("dictionary"));
        self.old.get(parse)
    }
}

/// All dictionaries given.
#[derive(Debug, Default)]
pub struct Dictionaries(Vec<Dictionary>);

impl Dictionaries {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or is larger than 128 MiB.
    pub fn read(paths: &[PathBuf]) -> Result<Self> {
        let read = |path: &PathBuf| {
            let source = Source::open(path)?;
            let len = Limits::check(source.len(), MAX, "dictionary")?;
            Ok(Dictionary::new(source.get(FileOffset(0), len, "dictionary")?))
        };
        let named = |path: &PathBuf| read(path).map_err(|e: Error| e.within(path.display()));
        Ok(Self(paths.iter().map(named).collect::<Result<_>>()?))
    }

    /// The candidates for a frame, with `None` for no dictionary. A frame without an id gets the only dictionary given,
    /// as in zstd; with several given, all are candidates, and decoding decides.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`] if the frame names a dictionary that was not given.
    pub(super) fn of(&self, header: &Header) -> Result<Vec<Option<&Dictionary>>> {
        match (header.dictionary, &*self.0) {
            (0, []) => Ok(vec![None]),
            (0, [only]) => Ok(vec![Some(only)]),
            (0, all) => {
                let (raw, trained): (Vec<_>, Vec<_>) = all.iter().map(Some).partition(|d| d.is_some_and(|d| d.id == 0));
                Ok([None].into_iter().chain(raw).chain(trained).collect())
            }
            (id, all) => all.iter().find(|d| d.id == id).map(|d| vec![Some(d)]).ok_or_else(|| {
                let which = format!("a frame that needs dictionary {id}; give its file with -o dict=FILE");
                Error::unsupported(which, "dictionary id")
            }),
        }
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({}, {} bytes)", self.id, self.bytes.len())
    }
}
