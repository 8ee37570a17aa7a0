//! Dictionaries given by the user, chosen by the id that a frame names.
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

/// The largest dictionary that is read.
const MAX: u64 = 128 << 20;

/// One dictionary file.
pub(super) struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
    old: Once<Arc<v07::Dictionary>>,
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

    /// The bytes of the file, as libzstd wants them.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Parsed for libzstd, once for all frames.
    ///
    /// # Errors
    /// When its tables are broken.
    pub(super) fn ready(&self) -> Result<&DDict<'static>> {
        let ready = self.ready.get_or_init(|| DDict::try_create(&self.bytes)).as_ref();
        ready.ok_or_else(|| Error::corrupt("its tables are broken", "dictionary"))
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

    /// Those that a frame may need, `None` standing for none at all. A frame that names none gets the only one given,
    /// as zstd does; of several, it may need any, and which shows when it is decoded.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`] when the frame names one that was not given.
    pub(super) fn of(&self, header: &Header) -> Result<Vec<Option<&Dictionary>>> {
        match (header.dictionary, &*self.0) {
            (0, []) => Ok(vec![None]),
            (0, [only]) => Ok(vec![Some(only)]),
            (0, all) => {
                let (raw, trained): (Vec<_>, Vec<_>) = all.iter().map(Some).partition(|d| d.is_some_and(|d| d.id == 0));
                Ok([None].into_iter().chain(raw).chain(trained).collect())
            }
            (id, all) => all.iter().find(|d| d.id == id).map(|d| vec![Some(d)]).ok_or_else(|| {
                let which = format!("a frame without its dictionary {id}; give the file with -o dict=FILE");
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
