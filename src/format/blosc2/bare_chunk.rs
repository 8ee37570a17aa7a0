//! A file that consists of one chunk.
//!
//! It has no magic: its size must be that in its header, and its header must be plausible.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::format::{Array, ArrayList, Arrays, Check, Container, Entry, Info, Options};
use crate::source::Source;

use super::chunk_index::ChunkIndex;
use super::entries::DecodedFrame;
use super::header::ChunkHeader;
use super::info;
use super::item_spec::ItemSpec;
use super::memory::ContainerMemory;
use super::stored_chunk::ChunkLocation;

/// Whether a file of `len` bytes that begins with `head` can be a chunk.
pub(super) fn detect(head: &[u8], len: u64) -> bool {
    match ChunkHeader::parse(head, FileOffset(0), len) {
        Ok(header) => u64::from(header.cbytes) == len && head.get(1) == Some(&1),
        Err(_) => false,
    }
}

/// A file that consists of one chunk.
pub(super) struct BareChunk {
    source: Arc<Source>,
    header: ChunkHeader,
    decoded: DecodedFrame,
    array: Option<Array>,
}

impl BareChunk {
    /// Opens the chunk that fills `source`.
    pub(super) fn open(source: &Arc<Source>, options: &Options, memory: Arc<ContainerMemory>) -> Result<Self> {
        let location = ChunkLocation { source: source.clone(), at: FileOffset(0), max_len: source.len() };
        let header = location.header()?;
        if u64::from(header.cbytes) != source.len() {
            let why = format!("{} bytes, the file has {}", header.cbytes, source.len());
            return Err(Error::corrupt(why, "cbytes").at(FileOffset(0x0C)));
        }
        let chunks = Arc::new(ChunkIndex::single(
            location,
            header.nbytes.into(),
            ItemSpec { memory, typesize: None, blockshape: Ok(None) },
        ));
        let decoded = DecodedFrame::new(chunks, header.typesize.into(), Ok(None), source.len(), None);
        let array = decoded.array(options)?;
        Ok(Self { source: source.clone(), header, decoded, array })
    }
}

impl Container for BareChunk {
    fn info(&self) -> Info {
        let sizes = (self.source.len(), self.decoded.len());
        info::container(self.header.version.to_string(), sizes, None, info::chunk(&self.header))
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.decoded.entries(self.array.clone())
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(ArrayList::data(self.decoded.data(self.array.clone())?))
    }

    fn checks(&self) -> Vec<Check> {
        self.decoded.data.checks("")
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.source.clone()]
    }
}

impl fmt::Debug for BareChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bare({:?})", self.source.path())
    }
}
