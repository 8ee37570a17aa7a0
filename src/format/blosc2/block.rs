//! One block of a chunk: its streams decoded, its filters undone.
//!
//! Reference: sections 6.3 (streams), 6.6 (dictionaries), 6.8 (VL-blocks).
//! Checked: every size against what is left of the block, and that streams give exactly the block.
//! Limits: [`Plan::survey`] holds what a large block claims against what its streams can give, before memory is
//! taken for it.
#![forbid(unsafe_code)]

use crate::bytes::{Cursor, wide};
use crate::error::{Error, Result};
use crate::limits::zeroed;

use super::codec::{Algorithm, Contexts, Dictionary};
use super::filter::Pipeline;
use super::header::{Header, Kind};

/// How the blocks of one chunk are decoded.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) header: Header,
    /// The codec; asked for only where a stream is not stored raw.
    pub(super) algorithm: Result<Algorithm>,
    pub(super) dictionary: Option<Dictionary>,
    pub(super) pipeline: Pipeline,
}

/// Memory of one thread, kept from block to block.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    contexts: Contexts,
    /// A block between two filters.
    aside: Vec<u8>,
    /// A block of which only a part is wanted.
    pub(super) whole: Vec<u8>,
    /// Stored bytes.
    pub(super) stored: Vec<u8>,
}

/// Buffers of a scratch above this size are not kept.
const KEPT: usize = 16 << 20;

impl Scratch {
    /// Runs `f` with the scratch of this thread.
    pub(super) fn with<T>(f: impl FnOnce(&mut Self) -> T) -> T {
        thread_local! { static SCRATCH: std::cell::Cell<Option<Box<Scratch>>> = const { std::cell::Cell::new(None) } }
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let result = f(&mut scratch);
        for buffer in [&mut scratch.aside, &mut scratch.whole, &mut scratch.stored] {
            if buffer.len() > KEPT {
                *buffer = Vec::new();
            }
        }
        SCRATCH.set(Some(scratch));
        result
    }
}

/// `len` bytes of `buffer`, with unspecified content.
pub(super) fn sized<'a>(buffer: &'a mut Vec<u8>, len: usize, what: &'static str) -> Result<&'a mut [u8]> {
    if buffer.len() < len {
        // A new vector: growing the old one would copy bytes that nobody wants.
        *buffer = Vec::new();
        *buffer = zeroed(wide(len), what)?;
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
    /// Bytes of a stream in a block of `len` bytes, and how many streams there are.
    fn streams(&self, len: usize, short: bool) -> (usize, usize) {
        let typesize = usize::from(self.header.typesize);
        let vl = matches!(self.header.kind, Kind::VlBlocks { .. });
        // Blosc 1.x did not always have the flag; its rule was this.
        let old_rule = self.header.version > 2 || (typesize <= 16 && len / typesize >= 128);
        let split = !self.header.unsplit && !short && !vl && old_rule;
        if split { (len / typesize, typesize) } else { (len, 1) }
    }

    /// Takes one stream of `len` decoded bytes from `cur`.
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

    /// Whether the streams in `cur` can give `len` bytes at all; decodes nothing.
    pub(super) fn survey(&self, mut cur: Cursor<'_>, len: usize, short: bool) -> Result<()> {
        let (each, count) = self.streams(len, short);
        for _ in 0..count {
            if let Stream::Coded(coded) = self.stream(&mut cur, each)? {
                let most = self.algorithm.clone().map_err(|e| e.at(coded.at()))?.at_most(wide(coded.len()));
                if wide(each) > most {
                    let why = format!("{} bytes cannot give {each}", coded.len());
                    return Err(Error::corrupt(why, "stream").at(coded.at()));
                }
            }
        }
        Ok(())
    }

    /// Decodes the block whose streams are in `cur`, filling `dst` completely.
    ///
    /// `short` says that it is the last, shorter block; `reference` is the decoded first block where DELTA
    /// needs it.
    pub(super) fn decode(
        &self,
        mut cur: Cursor<'_>,
        short: bool,
        reference: Option<&[u8]>,
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let start = cur.at();
        let (each, count) = self.streams(dst.len(), short);
        if each == 0 {
            return Err(Error::corrupt("a block of less than an item", "blocksize").at(start));
        }
        let Scratch { contexts, aside, .. } = scratch;
        let aside = sized(aside, if self.pipeline.moves() { dst.len() } else { 0 }, "block")?;
        let streams = if self.pipeline.starts_aside() { &mut *aside } else { &mut *dst };
        for out in streams[..each * count].chunks_exact_mut(each) {
            match self.stream(&mut cur, each)? {
                Stream::Fill(value) => out.fill(value),
                Stream::Raw(bytes) => out.copy_from_slice(bytes),
                Stream::Coded(coded) => {
                    let algorithm = self.algorithm.clone().map_err(|e| e.at(coded.at()))?;
                    contexts
                        .decode(algorithm, self.dictionary.as_ref(), coded.rest(), out)
                        .map_err(|broken| Error::corrupt(broken.why, "stream").at(coded.at().plus(wide(broken.at))))?;
                }
            }
        }
        streams[each * count..].fill(0);
        self.pipeline.undo(reference, dst, aside).map_err(|e| e.at(start))
    }
}
