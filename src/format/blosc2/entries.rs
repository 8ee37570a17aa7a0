//! The virtual files of a frame or a bare chunk.
#![forbid(unsafe_code)]

use std::sync::Arc;

use serde_json::Value;

use crate::checksum::ChecksumGate;
use crate::error::{Error, Result};
use crate::format::space::of_mlarray;
use crate::format::{
    About, Array, Attrs, BlobRef, Content, Dtype, Entry, File, FileExtent, Grid, IndexedDir, Node, Options,
};

use super::b2nd;
use super::chunk_blob::{self, ChunkBlob, SingleChunk};
use super::chunk_index::ChunkIndex;
use super::header::{ChunkHeader, ChunkKind};
use super::registry;
use super::stored_chunk::ChunkLocation;

/// The decoded content of a frame or bare chunk: its chunks, item size and array geometry.
#[derive(Debug)]
pub(super) struct DecodedFrame {
    pub(super) chunks: Arc<ChunkIndex>,
    pub(super) data: Arc<ChunkBlob>,
    pub(super) blob: BlobRef,
    /// Item size in bytes.
    pub(super) typesize: u32,
    /// An error if its geometry is unknown.
    pub(super) array: Result<Option<b2nd::Geometry>>,
    /// Bytes that the chunks take in the file.
    pub(super) stored: u64,
    gate: Option<ChecksumGate>,
    /// Metadata of the array in the metalayers.
    about: Option<About>,
    is_of_mlarray: bool,
}

impl DecodedFrame {
    pub(super) fn new(
        chunks: Arc<ChunkIndex>,
        typesize: u32,
        array: Result<Option<b2nd::Geometry>>,
        stored: u64,
        gate: Option<ChecksumGate>,
    ) -> Self {
        let data = Arc::new(ChunkBlob::new(chunks.clone(), gate.clone()));
        Self {
            chunks,
            blob: BlobRef::shared(data.clone()),
            data,
            typesize,
            array,
            stored,
            gate,
            about: None,
            is_of_mlarray: false,
        }
    }

    /// Sets the metadata of the array.
    pub(super) fn about(self, about: Option<About>, is_of_mlarray: bool) -> Self {
        Self { about, is_of_mlarray, ..self }
    }

    /// Size of `data.raw`; `None` if it depends on an unknown geometry.
    pub(super) fn len(&self) -> Option<u64> {
        Some(match self.array.as_ref().ok()? {
            // Checked when the frame was opened.
            Some(array) => array.items().unwrap_or(0).saturating_mul(self.typesize.into()),
            None => self.chunks.total(),
        })
    }

    /// The element type and shape of `data.npy`, overridden by `options`.
    pub(super) fn array(&self, options: &Options) -> Result<Option<Array>> {
        self.len().map_or(Ok(None), |len| options.array(self.own_array(), len))
    }

    /// The element type and shape of `data.npy` according to the container; `None` if they are unknown.
    pub(super) fn own_array(&self) -> Option<Array> {
        let (array, len) = (self.array.as_ref().ok()?, self.len()?);
        let dtype = match array {
            Some(array) => array.descr(self.typesize),
            None => Dtype::opaque(self.typesize.into()),
        };
        let items = || vec![len.checked_div(dtype.itemsize).unwrap_or(0)];
        let shape = array.as_ref().map_or_else(items, |array| array.shape.clone());
        Some(Array { descr: dtype.descr, itemsize: dtype.itemsize, shape })
    }

    /// `data.raw`, which contains `array`, `chunks/` and `stored/`.
    pub(super) fn entries(&self, array: Option<Array>) -> Result<Vec<Entry>> {
        let data = self.data(array)?.principal();
        let chunks = NumberedChunks { data: self.data.clone(), blob: self.blob.clone(), index: self.chunks.clone() };
        let stored = StoredChunks { chunks: self.chunks.clone(), gate: self.gate.clone() };
        Ok(vec![
            Entry::own("data.raw", data),
            Entry::own("chunks", Node::IndexedDir(Arc::new(chunks))),
            Entry::own("stored", Node::IndexedDir(Arc::new(stored))),
        ])
    }

    /// `data.raw`, which contains `array`.
    pub(super) fn data(&self, array: Option<Array>) -> Result<File> {
        let file = File::new(self.content()?).stored(self.stored).typed(array).attr("typesize", self.typesize);
        let spatial = self.spatial()?;
        let rank = file.array.as_ref().map_or(0, |array| array.shape.len());
        let space = spatial.and_then(|spatial| of_mlarray(&spatial, rank));
        Ok(File { about: self.about.clone(), space, ..file })
    }

    /// The metadata of `mlarray` about the space of the array. In frames of other writers, nothing is read for it.
    fn spatial(&self) -> Result<Option<Value>> {
        let Some(about) = self.about.as_ref().filter(|_| self.is_of_mlarray) else { return Ok(None) };
        match about.attributes() {
            // The attributes say why.
            Err(error) if error.is_lasting() => Ok(None),
            attributes => Ok(attributes?.remove("spatial")),
        }
    }

    fn content(&self) -> Result<Content> {
        let array = match &self.array {
            Ok(Some(array)) => array,
            Ok(None) if self.chunks.fixed().is_some() => return Ok(Content::Blob(self.blob.clone())),
            Ok(None) => return variable(&self.chunks, &self.blob),
            Err(error) => return failing(error.clone()),
        };
        let len = self.len().unwrap_or(0);
        Ok(match array.shape.len() {
            _ if len == 0 => Content::bytes([]),
            0 => Content::Blob(self.blob.clone()).slice(0..len),
            _ => Content::Grid(Arc::new(Grid {
                blob: self.blob.clone(),
                itemsize: self.typesize.into(),
                shape: array.shape.clone(),
                chunk: array.chunk.iter().map(|&n| n.into()).collect(),
                block: array.block.iter().map(|&n| n.into()).collect(),
                window: None,
            })),
        })
    }
}

/// The content of chunks that differ in size; fails on every use if one of the sizes is unknown.
fn variable(chunks: &Arc<ChunkIndex>, blob: &BlobRef) -> Result<Content> {
    match chunks.listed() {
        Ok(list) => match list.unknown.first() {
            None => Ok(Content::Blob(blob.clone())),
            Some(&i) => failing(chunks.why_unknown(i)),
        },
        Err(error) => failing(error),
    }
}

/// A file that fails with `error` on every use.
///
/// # Errors
/// Fails with `error` itself if it is transient, so that the directory can be listed again.
pub(super) fn failing(error: Error) -> Result<Content> {
    if error.is_lasting() { Ok(Content::failed(None, error)) } else { Err(error) }
}

/// The entry of a directory that cannot be listed because of `error`: a file that fails with it, so that the directory
/// around it can be listed, and its files do not appear to be missing.
pub(super) fn unknown_directory(error: &Error) -> Node {
    File::new(Content::failed(None, error.clone())).into()
}

/// The attributes that the header of a chunk gives.
fn attrs(location: &ChunkLocation, header: &ChunkHeader) -> Attrs {
    let mut attrs: Attrs = vec![
        ("codec", header.codec_name().into()),
        ("stored_size", header.cbytes.to_string()),
        ("offset", location.at.0.to_string()),
        ("blocksize", header.blocksize.to_string()),
    ];
    if matches!(header.kind, ChunkKind::Blocks | ChunkKind::VlBlocks { .. }) {
        let filters = header.filters.iter().filter(|f| f.id != 0).map(|f| registry::filter_name(f.id));
        attrs.push(("filters", filters.collect::<Vec<_>>().join(", ")));
    }
    attrs
}

/// `chunks/`: the decoded chunks.
struct NumberedChunks {
    data: Arc<ChunkBlob>,
    index: Arc<ChunkIndex>,
    blob: BlobRef,
}

impl IndexedDir for NumberedChunks {
    fn count(&self) -> u64 {
        self.index.count()
    }

    fn suffix(&self) -> &'static str {
        ".raw"
    }

    fn file(&self, index: u64) -> Result<File> {
        let range = self.index.range(index)?;
        let part = Content::Blob(self.blob.clone()).slice(range.clone());
        let mut file = if chunk_blob::shares_piece(&range) {
            File::new(Content::Blob(BlobRef::new(SingleChunk::new(&self.data, index, range)))).part_of(part)
        } else {
            File::new(part)
        };
        // An unreadable header is reported when the chunk is read.
        match self.index.header(index) {
            Ok(Some((location, header))) => {
                file.stored = header.cbytes.into();
                file.attrs = attrs(&location, &header);
            }
            Ok(None) => file = file.attr("codec", "special entry of the index"),
            Err(_) => {}
        }
        Ok(file)
    }
}

/// `stored/`: the chunks as stored.
struct StoredChunks {
    chunks: Arc<ChunkIndex>,
    gate: Option<ChecksumGate>,
}

impl IndexedDir for StoredChunks {
    fn count(&self) -> u64 {
        self.chunks.count()
    }

    fn suffix(&self) -> &'static str {
        ".bin"
    }

    fn next(&self, index: u64) -> Result<Option<u64>> {
        self.chunks.next_stored(index)
    }

    fn file(&self, index: u64) -> Result<File> {
        let within = |e: Error| e.within(format_args!("chunk {index}"));
        let Some((location, header)) = self.chunks.header(index).map_err(within)? else {
            return Err(Error::new(crate::error::Kind::NotFound, "chunk"));
        };
        let len = u64::from(header.cbytes);
        let attrs = attrs(&location, &header);
        let stored = FileExtent { source: location.source, at: location.at, len, gate: self.gate.clone() };
        Ok(File { attrs, ..File::new(Content::FileExtent(stored)).stored(len) })
    }
}
