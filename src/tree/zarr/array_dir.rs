//! The directory of an array: its document, and its chunks.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::{Arrays, Content, Directory, Entry, File, LazyFile, Node, NumberedFiles};
use crate::text;
use crate::view::zarr::{self, Chunks};

use super::{DOCUMENT, Zarr};

/// The name of the directory of chunks; of the chunk of a scalar, which has no numbers.
const CHUNKS: &str = "c";

/// The directory of array `index`.
pub(super) struct ArrayDir {
    pub(super) zarr: Arc<Zarr>,
    pub(super) index: u64,
}

/// The numbers of its files.
const JSON: u64 = 0;
const SCALAR: u64 = 1;

impl ArrayDir {
    fn document(&self) -> Result<Vec<u8>> {
        let (named, chunks) = self.zarr.array(self.index)?;
        let dimensions = self.zarr.names()?.dimensions(self.index, &named);
        let attributes = self.zarr.attributes(self.index)?;
        Ok((text::json(&zarr::array(&chunks, &dimensions, attributes)) + "\n").into_bytes())
    }
}

impl Directory for ArrayDir {
    fn entries(&self) -> Result<Vec<Entry>> {
        let (_, chunks) = self.zarr.array(self.index)?;
        let file = |number, len, stored| Node::LazyFile(LazyFile { number, len, stored, array: None });
        let (stem, suffix) = DOCUMENT;
        let document = match self.document() {
            // Its attributes are broken; the elements are not.
            Err(e) if e.is_lasting() => None,
            document => Some(to_u64(document?.len())),
        };
        let chunks = match chunks.sides() {
            [] => file(SCALAR, Some(chunks.byte_len()), chunks.stored()),
            _ => Node::LazyDir(0),
        };
        Ok(vec![Entry::named(stem, suffix, file(JSON, document, 0)), Entry::named(CHUNKS, "", chunks)])
    }

    fn file(&self, number: u64) -> Result<File> {
        if number == JSON {
            let (zarr, index) = (Arc::clone(&self.zarr), self.index);
            let make = move || Self { zarr: Arc::clone(&zarr), index }.document().map(Content::bytes);
            return Ok(File::new(Content::Deferred { len: None, make: Arc::new(make) }));
        }
        let (_, chunks) = self.zarr.array(self.index)?;
        chunks.file(0, &self.zarr.arrays.file(self.index)?)
    }

    fn dir(&self, _: u64) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(ChunkDir { zarr: Arc::clone(&self.zarr), index: self.index }))
    }
}

/// `c/`: the chunks of array `index`.
struct ChunkDir {
    zarr: Arc<Zarr>,
    index: u64,
}

impl Directory for ChunkDir {
    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    fn numbered(&self) -> Result<Option<Arc<dyn NumberedFiles>>> {
        let (_, chunks) = self.zarr.array(self.index)?;
        let (arrays, index) = (Arc::clone(&self.zarr.arrays), self.index);
        Ok(Some(Arc::new(ChunkFiles { arrays, index, chunks })))
    }
}

/// The chunks of array `index` as files.
struct ChunkFiles {
    arrays: Arc<dyn Arrays>,
    index: u64,
    chunks: Chunks,
}

impl NumberedFiles for ChunkFiles {
    fn sides(&self) -> &[u64] {
        self.chunks.sides()
    }

    fn size(&self) -> (u64, u64) {
        (self.chunks.byte_len(), self.chunks.stored())
    }

    fn file(&self, number: u64) -> Result<File> {
        self.chunks.file(number, &self.arrays.file(self.index)?)
    }
}
