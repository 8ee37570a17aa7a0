//! The stored bytes of a chunk: where they are, and reading ranges of them.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::limits::zeroed;
use crate::source::{SmallReads, Source};

use super::header::ChunkHeader;

/// Location of a chunk, and the most bytes that it may take there.
#[derive(Debug, Clone)]
pub(super) struct ChunkLocation {
    pub(super) source: Arc<Source>,
    pub(super) at: FileOffset,
    pub(super) max_len: u64,
}

impl ChunkLocation {
    /// Reads only the header of the chunk.
    pub(super) fn header(&self) -> Result<ChunkHeader> {
        let mut bytes = [0; 32];
        let len = self.max_len.min(self.source.len().saturating_sub(self.at.0)).min(32) as usize;
        self.source.read(self.at, &mut bytes[..len], "chunk header")?;
        ChunkHeader::parse(&bytes[..len], self.at, self.max_len)
    }
}

/// The stored bytes of a chunk: in memory if it is small, else in the file.
#[derive(Debug, Clone)]
pub(super) struct StoredChunk {
    source: Arc<Source>,
    at: FileOffset,
    /// The whole chunk, if it is small.
    all: Option<Arc<[u8]>>,
}

impl StoredChunk {
    /// The chunk at `at`; `all` are its bytes, if it is small.
    pub(super) fn new(source: &Arc<Source>, at: FileOffset, all: Option<Vec<u8>>) -> Self {
        Self { source: Arc::clone(source), at, all: all.map(Arc::from) }
    }

    /// The file that the chunk is read from.
    pub(super) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The whole chunk, if it is in memory.
    pub(super) fn all(&self) -> Option<&[u8]> {
        self.all.as_deref()
    }

    /// Fails if `len` bytes from `pos` on are not in the file.
    pub(super) fn check_len(&self, pos: u64, len: u64, what: &'static str) -> Result<()> {
        let have = self.source.len().saturating_sub(self.at(pos).0);
        if self.all.is_none() && len > have {
            return Err(Error::corrupt("beyond the end of the file", what).at(self.at(pos)));
        }
        Ok(())
    }

    /// File offset of byte `pos` of the chunk.
    pub(super) fn at(&self, pos: u64) -> FileOffset {
        self.at.plus(pos)
    }

    /// Fills `dst` with the stored bytes from `pos` on.
    pub(super) fn read(&self, pos: u64, dst: &mut [u8], what: &'static str) -> Result<()> {
        let at = self.at(pos);
        let Some(all) = &self.all else { return self.source.read(at, dst, what) };
        let start = usize::try_from(pos).unwrap_or(usize::MAX);
        match all.get(start..).and_then(|rest| rest.get(..dst.len())) {
            Some(bytes) => dst.copy_from_slice(bytes),
            None => return Err(Error::corrupt("beyond the end of the chunk", what).at(at)),
        }
        Ok(())
    }

    /// A reader of many small fields of the chunk, at file offsets.
    pub(super) fn small_reads(&self) -> SmallReads<'_> {
        SmallReads::new(&self.source)
    }

    /// Reads `len` stored bytes from `pos` on.
    pub(super) fn get(&self, pos: u64, len: u64, what: &'static str) -> Result<Vec<u8>> {
        self.check_len(pos, len, what)?;
        let mut bytes = zeroed(len, what)?;
        self.read(pos, &mut bytes, what)?;
        Ok(bytes)
    }
}
