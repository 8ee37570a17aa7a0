//! Dictionaries given by the user, chosen by the id that a frame names.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::once::Once;
use crate::source::Source;

use super::header::Header;
use super::v07;

/// The largest dictionary that is read.
const MAX: u64 = 128 << 20;

/// One dictionary file.
#[derive(Debug)]
pub(super) struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
    old: Once<Arc<v07::Dictionary>>,
}

impl Dictionary {
    fn new(bytes: Vec<u8>) -> Self {
        let id = match bytes.split_first_chunk::<8>() {
            Some(([0x37, 0xA4, 0x30, 0xEC, id @ ..], _)) => u32::from_le_bytes(*id),
            _ => 0,
        };
        Self { id, bytes, old: Once::new() }
    }

    /// The bytes of the file, as libzstd wants them.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Parsed for frames of 0.7.
    ///
    /// # Errors
    /// When its tables are broken.
    pub(super) fn v07(&self) -> Result<&Arc<v07::Dictionary>> {
        let parse = || v07::Dictionary::parse(&self.bytes).map(Arc::new).map_err(|e| e.within("dictionary"));
        self.old.get(parse)
    }
}

/// All that were given.
#[derive(Debug, Default)]
pub struct Dictionaries(Vec<Dictionary>);

impl Dictionaries {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read, or is larger than a dictionary may be.
    pub fn read(paths: &[PathBuf]) -> Result<Self> {
        let read = |path: &PathBuf| {
            let source = Source::open(path)?;
            let len = Limits::check(source.len(), MAX, "dictionary")?;
            Ok(Dictionary::new(source.get(FileOffset(0), len, "dictionary")?))
        };
        let named = |path: &PathBuf| read(path).map_err(|e: Error| e.within(path.display()));
        Ok(Self(paths.iter().map(named).collect::<Result<_>>()?))
    }

    /// The one that a frame needs. A frame that names none gets the only one given, as zstd does.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`] when the frame names one that was not given.
    pub(super) fn of(&self, header: &Header) -> Result<Option<&Dictionary>> {
        match (header.dictionary, &*self.0) {
            (0, [only]) => Ok(Some(only)),
            (0, all) => Ok(all.iter().find(|d| d.id == 0)),
            (id, all) => all.iter().find(|d| d.id == id).map(Some).ok_or_else(|| {
                let which = format!("a frame without its dictionary {id}; give the file with -o dict=FILE");
                Error::unsupported(which, "dictionary id")
            }),
        }
    }
}
