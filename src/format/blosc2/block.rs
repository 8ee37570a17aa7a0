//! Decoding one block of a chunk: its streams, then its filters in reverse.
//!
//! Reference: sections 6.3 (streams), 6.6 (dictionaries), 6.8 (VL-blocks).
//! Checked: every size against the rest of the block; the streams fill the block exactly.
//! Limits: [`Plan::survey`] checks the claimed size of a large block against the most that its streams can decode to,
//! before memory is allocated for it.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::account::{Account, Retained};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::codec::pace::{self, Pace};
use crate::error::{Error, Result};
use crate::limits::zeroed;

use super::chunk::FileExtent;
use super::codec::{Algorithm, Contexts, Dictionary};
use super::filter::Pipeline;
use super::header::{Header, Kind};

/// How the blocks of one chunk are decoded.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) header: Header,
    /// The codec. An error is reported only if a stream needs it: raw streams do not.
    pub(super) algorithm: Result<Algorithm>,
    pub(super) dictionary: Option<Dictionary>,
    pub(super) pipeline: Pipeline,
}

/// Buffers of one decoder, reused from block to block.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    contexts: Contexts,
    /// Holds a block between two filters.
    aside: Vec<u8>,
    /// Holds a whole block of which only a part is wanted.
    pub(super) whole: Vec<u8>,
    /// Holds stored bytes.
    pub(super) stored: Vec<u8>,
    charge: Retained,
}

/// Larger buffers are freed after use.
const KEPT: usize = 4 << 20;

impl Scratch {
    /// Charges the retained buffers to `account`; frees them if that fails.
    pub(super) fn settle(&mut self, account: &Account) {
        for buffer in [&mut self.aside, &mut self.whole, &mut self.stored] {
            if buffer.len() > KEPT {
                *buffer = Vec::new();
            }
        }
        let buffers = self.aside.len() + self.whole.len() + self.stored.len();
        let size = to_u64(buffers + self.contexts.footprint());
        if !self.charge.cover(account, size, "decoder") {
            *self = Self::default();
        }
    }
}

/// `len` bytes of `buffer`, with unspecified content.
pub(super) fn sized<'a>(buffer: &'a mut Vec<u8>, len: usize, what: &'static str) -> Result<&'a mut [u8]> {
    if buffer.len() < len {
        // Allocate anew: growing would copy the old content.
        *buffer = Vec::new();
        *buffer = zeroed(to_u64(len), what)?;
    }
    Ok(&mut buffer[..len])
}

/// One stream of a block.
enum Stream<'a> {
    Fill(u8),
    Raw(&'a [u8]),
    Coded(Cursor<'a>),
}

impl Plan {
    /// Decoded size of each stream in a block of `len` bytes, and the number of streams.
    fn streams(&self, len: usize, short: bool) -> (usize, usize) {
        let typesize = usize::from(self.header.typesize);
        let vl = matches!(self.header.kind, Kind::VlBlocks { .. });
        // Blosc 1.x did not always set the flag; before, this rule applied.
        let old_rule = self.header.version > 2 || (typesize <= 16 && len / typesize >= 128);
        let split = !self.header.unsplit && !short && !vl && old_rule;
        if split { (len / typesize, typesize) } else { (len, 1) }
    }

    /// Reads one stream of `len` decoded bytes from `cur`.
    fn stream<'a>(&self, cur: &mut Cursor<'a>, len: usize) -> Result<Stream<'a>> {
        if matches!(self.header.kind, Kind::VlBlocks { .. }) {
            let coded = cur.sub(cur.len(), "block")?;
            return Ok(if coded.len() == len { Stream::Raw(coded.rest()) } else { Stream::Coded(coded) });
        }
        let at = cur.at();
        let csize = cur.i32_le("stream size")?;
        match usize::try_from(csize) {
            Ok(0) => Ok(Stream::Fill(0)),
            Ok(size) if size == len => cur.take(size, "stream").map(Stream::Raw),
            Ok(size) => cur.sub(size, "stream").map(Stream::Coded),
            Err(_) => {
                let token = cur.u8("stream token")?;
                match u8::try_from(csize.unsigned_abs()) {
                    Ok(value) if token & 1 == 1 => Ok(Stream::Fill(value)),
                    _ => Err(Error::corrupt(format!("size {csize} with token {token:#04x}"), "stream size").at(at)),
                }
            }
        }
    }

    /// Checks that the streams stored in `span` of the chunk can decode to `len` bytes. Reads only the sizes of the
    /// streams.
    pub(super) fn survey(&self, stored: &FileExtent, span: Range<u64>, len: usize, short: bool) -> Result<()> {
        let (each, count) = self.streams(len, short);
        let check = |size: u64, at: FileOffset| {
            let most = self.algorithm.clone().map_err(|e| e.at(at))?.at_most(size);
            if to_u64(each) > most {
                return Err(Error::corrupt(format!("{size} bytes cannot give {each}"), "stream").at(at));
            }
            Ok(())
        };
        if matches!(self.header.kind, Kind::VlBlocks { .. }) {
            let size = span.end - span.start;
            return if size == to_u64(len) { Ok(()) } else { check(size, stored.at(span.start)) };
        }
        let mut pos = span.start;
        for _ in 0..count {
            let mut size = [0; 4];
            let at = stored.at(pos);
            if span.end.saturating_sub(pos) < 4 {
                return Err(Error::corrupt("beyond the block", "stream size").at(at));
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

    /// Decodes the block whose streams are in `cur`, filling `dst` completely.
    ///
    /// `short` marks a shorter last block; `reference` is the decoded first block, if DELTA needs it.
    pub(super) fn decode(
        &self,
        cur: Cursor<'_>,
        short: bool,
        reference: Option<&[u8]>,
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { contexts, aside, .. } = scratch;
        let aside = sized(aside, self.aside(dst.len()), "block")?;
        self.decode_with(cur, short, reference, dst, aside, contexts, &mut || ())
    }

    /// Size of the second buffer that a block of `len` bytes needs between two filters.
    pub(super) fn aside(&self, len: usize) -> usize {
        if self.pipeline.moves() { len } else { 0 }
    }

    /// Like [`Plan::decode`], with `aside` as the second buffer; calls `pace` along the way.
    #[expect(clippy::too_many_arguments, reason = "what a block needs, and the buffers it goes through")]
    pub(super) fn decode_with(
        &self,
        mut cur: Cursor<'_>,
        short: bool,
        reference: Option<&[u8]>,
        dst: &mut [u8],
        aside: &mut [u8],
        contexts: &mut Contexts,
        pace: Pace<'_>,
    ) -> Result<()> {
        let start = cur.at();
        let (each, count) = self.streams(dst.len(), short);
        if each == 0 {
            return Err(Error::corrupt("a block of less than an item", "blocksize").at(start));
        }
        let streams = if self.pipeline.starts_aside() { &mut *aside } else { &mut *dst };
        for out in streams[..each * count].chunks_exact_mut(each) {
            match self.stream(&mut cur, each)? {
                Stream::Fill(value) => pace::fill(out, value, pace),
                Stream::Raw(bytes) => pace::copy(bytes, out, pace),
                Stream::Coded(coded) => {
                    let algorithm = self.algorithm.clone().map_err(|e| e.at(coded.at()))?;
                    contexts.decode(algorithm, self.dictionary.as_ref(), coded.rest(), out, pace).map_err(
                        |broken| Error::corrupt(broken.why, "stream").at(coded.at().plus(to_u64(broken.at))),
                    )?;
                }
            }
        }
        streams[each * count..].fill(0);
        self.pipeline.undo(reference, dst, aside, pace).map_err(|e| e.at(start))
    }
}
