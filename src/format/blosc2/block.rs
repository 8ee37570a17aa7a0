//! Decoding one block of a chunk: its streams, then its filters in reverse.
//!
//! Reference: sections 6.3 (streams), 6.6 (dictionaries), 6.8 (VL-blocks).
//! Checked: every size against the rest of the block; the streams fill the block exactly.
//! Limits: [`BlockDecoder::preflight`] checks the claimed size of a large block against the most that its streams can
//! decode to, before memory is allocated for it.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::codec::pace::{self, Pace};
use crate::error::{Error, Result};

use super::codec::{Algorithm, ChunkDictionary, Contexts};
use super::decode_buffers::{DecodeBuffers, sized};
use super::filter::FilterPipeline;
use super::header::{ChunkHeader, ChunkKind};
use super::stored_chunk::StoredChunk;

/// How the blocks of one chunk are decoded.
#[derive(Debug)]
pub(super) struct BlockDecoder {
    pub(super) header: ChunkHeader,
    /// The codec. An error is reported only if a stream needs it: raw streams do not.
    pub(super) algorithm: Result<Algorithm>,
    pub(super) dictionary: Option<ChunkDictionary>,
    pub(super) pipeline: FilterPipeline,
}

/// One stream of a block.
enum StoredStream<'a> {
    Fill(u8),
    Raw(&'a [u8]),
    Coded(Cursor<'a>),
}

impl BlockDecoder {
    /// Decoded size of each stream in a block of `len` bytes, and the number of streams.
    fn streams(&self, len: usize, short: bool) -> (usize, usize) {
        let typesize = usize::from(self.header.typesize);
        let vl = matches!(self.header.kind, ChunkKind::VlBlocks { .. });
        // Blosc 1.x did not always set the flag; before, this rule applied.
        let old_rule = self.header.version > 2 || (typesize <= 16 && len / typesize >= 128);
        let split = !self.header.unsplit && !short && !vl && old_rule;
        if split { (len / typesize, typesize) } else { (len, 1) }
    }

    /// Reads one stream of `len` decoded bytes from `cur`.
    fn stream<'a>(&self, cur: &mut Cursor<'a>, len: usize) -> Result<StoredStream<'a>> {
        if matches!(self.header.kind, ChunkKind::VlBlocks { .. }) {
            let coded = cur.sub(cur.len(), "block")?;
            return Ok(if coded.len() == len { StoredStream::Raw(coded.rest()) } else { StoredStream::Coded(coded) });
        }
        let at = cur.at();
        let csize = cur.i32_le("stream size")?;
        match usize::try_from(csize) {
            Ok(0) => Ok(StoredStream::Fill(0)),
            Ok(size) if size == len => cur.take(size, "stream").map(StoredStream::Raw),
            Ok(size) => cur.sub(size, "stream").map(StoredStream::Coded),
            Err(_) => {
                let token = cur.u8("stream token")?;
                match u8::try_from(csize.unsigned_abs()) {
                    Ok(value) if token & 1 == 1 => Ok(StoredStream::Fill(value)),
                    _ => Err(Error::corrupt(format!("size {csize} with token {token:#04x}"), "stream size").at(at)),
                }
            }
        }
    }

    /// Checks that the streams stored in `span` of the chunk can decode to `len` bytes. Reads only the sizes of the
    /// streams.
    pub(super) fn preflight(&self, stored: &StoredChunk, span: Range<u64>, len: usize, short: bool) -> Result<()> {
        let (each, count) = self.streams(len, short);
        let check = |size: u64, at: FileOffset| {
            let max = self.algorithm.clone().map_err(|e| e.at(at))?.max_decoded(size);
            if to_u64(each) > max {
                return Err(Error::corrupt(format!("{size} bytes cannot decode to {each}"), "stream").at(at));
            }
            Ok(())
        };
        if matches!(self.header.kind, ChunkKind::VlBlocks { .. }) {
            let size = span.end - span.start;
            return if size == to_u64(len) { Ok(()) } else { check(size, stored.at(span.start)) };
        }
        let mut pos = span.start;
        for _ in 0..count {
            let mut size = [0; 4];
            let at = stored.at(pos);
            if span.end.saturating_sub(pos) < 4 {
                return Err(Error::corrupt("past the end of the block", "stream size").at(at));
            }
            stored.read(pos, &mut size, "stream size")?;
            let size = i32::from_le_bytes(size);
            pos += 4 + match u64::try_from(size) {
                Ok(size) => {
                    if size != 0 && size != to_u64(each) {
                        check(size, at.plus(4))?;
                    }
                    size
                }
                // A token: it is checked when the stream is decoded.
                Err(_) => 1,
            };
        }
        Ok(())
    }

    /// Decodes the block with its streams in `cur`, filling `dst` completely.
    ///
    /// `short` marks a shorter last block; `reference` is the decoded first block, if DELTA needs it.
    pub(super) fn decode(
        &self,
        cur: Cursor<'_>,
        short: bool,
        reference: Option<&[u8]>,
        dst: &mut [u8],
        buffers: &mut DecodeBuffers,
    ) -> Result<()> {
        let DecodeBuffers { contexts, second, .. } = buffers;
        let second = sized(second, self.second_len(dst.len()), "block")?;
        self.decode_with(cur, short, reference, dst, second, contexts, &mut || ())
    }

    /// Size of the second buffer that a block of `len` bytes needs between two filters.
    pub(super) fn second_len(&self, len: usize) -> usize {
        if self.pipeline.moves() { len } else { 0 }
    }

    /// Like [`BlockDecoder::decode`], with the second buffer `second`; calls `pace` along the way.
    #[expect(clippy::too_many_arguments, reason = "what a block needs, and the buffers it goes through")]
    pub(super) fn decode_with(
        &self,
        mut cur: Cursor<'_>,
        short: bool,
        reference: Option<&[u8]>,
        dst: &mut [u8],
        second: &mut [u8],
        contexts: &mut Contexts,
        pace: Pace<'_>,
    ) -> Result<()> {
        let start = cur.at();
        let (each, count) = self.streams(dst.len(), short);
        if each == 0 {
            return Err(Error::corrupt("a block is smaller than an item", "blocksize").at(start));
        }
        let streams = if self.pipeline.starts_in_second() { &mut *second } else { &mut *dst };
        for out in streams[..each * count].chunks_exact_mut(each) {
            match self.stream(&mut cur, each)? {
                StoredStream::Fill(value) => pace::fill(out, value, pace),
                StoredStream::Raw(bytes) => pace::copy(bytes, out, pace),
                StoredStream::Coded(coded) => {
                    let algorithm = self.algorithm.clone().map_err(|e| e.at(coded.at()))?;
                    contexts
                        .decode(algorithm, self.dictionary.as_ref(), coded.rest(), out, pace)
                        .map_err(|e| e.error(coded.at()))?;
                }
            }
        }
        streams[each * count..].fill(0);
        self.pipeline.undo(reference, dst, second, pace).map_err(|e| e.at(start))
    }
}
