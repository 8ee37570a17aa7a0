//! Blosc2: contiguous frames, sparse frame directories, b2nd arrays in both, archives of frames, and bare chunks.
//!
//! Reference: the Blosc2 frame, chunk and b2nd documents; section numbers refer to our own reference.
//!
//! Shows as: `data.raw`; `chunks/` and `stored/`, one file per chunk; `metalayers/` and `vlmetalayers/`, one file per
//! value and its JSON; `frames/000001/` and on for the frames that follow the first in one file. An archive shows as a
//! directory for each of its frames, and a store of python-blosc2 as one for each of its leaves. Piece: a chunk, consecutive blocks of a large one of about 1 MiB together, or
//! consecutive small chunks together. Checked: all structure at open; tables and streams at decode. The format has no
//! checksums but the Adler-32 of its codec zlib; for archives see `archive`. Limits: counts against the size of the
//! file; at most one block of decoded data is in memory at a time.
//!
//! Invariants: headers never decode; block decoding does no I/O; chunks are read through `stored_chunk`.
#![forbid(unsafe_code)]

mod announced_chunks;
mod archive;
mod attributes;
mod b2nd;
mod bare_chunk;
mod block;
mod block_offsets;
mod blosclz;
mod chunk;
mod chunk_blob;
mod chunk_blocks;
mod chunk_index;
mod chunk_store;
mod codec;
mod decode_buffers;
mod dimensions;
mod embed_store;
mod entries;
mod fill;
mod filter;
mod frame;
mod frames;
mod header;
mod index_chunk;
mod info;
mod item_spec;
mod json;
mod listed_sizes;
mod memory;
mod metalayer;
mod metalayers;
mod msgpack;
mod ndcell;
mod ndlz;
mod pickle;
mod registry;
mod special;
mod store;
mod store_dir;
mod stored_chunk;
mod stored_map;
mod stream_error;
mod table;

use std::ffi::OsStr;
use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::source::{Place, Source};

use super::{Container, Format, Input, Options};

use archive::B2zArchive;
use bare_chunk::BareChunk;
use embed_store::StoreFile;
use frame::Frame;
use frames::{Frames, OpenFrame};
use memory::ContainerMemory;
use store_dir::StoreDir;

pub(super) use chunk_store::INDEX;
pub(super) use store_dir::INDEX as STORE;

/// The entry in the table of formats.
pub(super) const FORMAT: Format = Format {
    name: info::NAME,
    extensions: &["b2frame", "b2nd", "b2e", "b2z", "b2d", "mla"],
    enclosed: &[],
    detect,
    open,
    kernels: &[],
};

fn detect(input: &Input) -> bool {
    match &input.source {
        None => input.dir.as_ref().is_some_and(detect_in),
        Some(source) => {
            let head = &input.head;
            // Its first member may be something else, or compressed.
            let is_archive = head.starts_with(&archive::LOCAL) && input.path.extension() == Some(OsStr::new("b2z"));
            head.starts_with(&frame::MAGIC)
                || is_archive
                || archive::detect(head)
                || bare_chunk::detect(head, source.len())
        }
    }
}

fn detect_in(place: &Place) -> bool {
    match place.source(INDEX) {
        // An index may exist but cannot be opened or read; opening the container reports why.
        Ok(index) => Frames::is_frame(&index, FileOffset(0)).unwrap_or(true),
        Err(e) if e.errno() == libc::ENOENT => store_dir::is_store(place).unwrap_or(true),
        Err(_) => true,
    }
}

/// Whether the index of a sparse frame or of a store is in `place`, and can be opened.
pub(super) fn has_index(place: &Place) -> bool {
    let is_sparse = |index: Arc<Source>| Frames::is_frame(&index, FileOffset(0)).unwrap_or(true);
    place.source(INDEX).is_ok_and(is_sparse) || store_dir::is_store(place).unwrap_or(false)
}

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let memory = ContainerMemory::of(options);
    let Some(source) = &input.source else {
        let dir = input.dir.as_ref().ok_or_else(|| Error::unsupported("neither a file nor a directory", "file"))?;
        if dir.source(INDEX).is_err_and(|e| e.errno() == libc::ENOENT) && store_dir::is_store(dir)? {
            return Ok(Arc::new(StoreDir::open(dir, options, &memory)?));
        }
        return Ok(Arc::new(Frames::new(Frame::sparse(dir, &memory)?, options, memory)?));
    };
    if input.head.starts_with(&frame::MAGIC) {
        let frame = Frame::contiguous(source, FileOffset(0), &memory)?;
        if embed_store::is_store(&frame) && frame.end().0 == source.len() {
            return Ok(Arc::new(StoreFile::open(Arc::new(OpenFrame::new(frame)), options)?));
        }
        return Ok(Arc::new(Frames::new(frame, options, memory)?));
    }
    if input.head.starts_with(&archive::LOCAL) {
        return Ok(Arc::new(B2zArchive::open(source, options, &memory)?));
    }
    // The version byte of a chunk is 1 to 6; anything else is a damaged frame.
    if input.head.first().is_none_or(|&version| version == 0 || version > 6) {
        return Err(Error::corrupt("not a Blosc2 frame", "magic").at(FileOffset(0)));
    }
    Ok(Arc::new(BareChunk::open(source, options, memory)?))
}
