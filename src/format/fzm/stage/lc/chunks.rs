//! The stream of the LC coders: chunks that decode to the same number of bytes each, coded or as they are.
//!
//! Reference: section 1 of the LC stages; section 5.9 for the first RZE. In order: the decoded length, the number of
//! chunks, the size of each, the chunks. The offsets of the chunks are running sums of their sizes, computed once.
//!
//! Invariant: the length given to [`LcChunks::new`] is the one in the stream, or the first read fails.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::to_usize;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::elements;
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

/// Why a chunk cannot be decoded.
#[derive(Debug)]
pub(in super::super) enum Invalid {
    /// Its bytes contradict each other.
    Corrupt(&'static str),
    /// Its bytes have no defined meaning.
    Undefined(&'static str),
    /// There is no memory to decode it.
    Failed(Error),
}

impl From<&'static str> for Invalid {
    fn from(why: &'static str) -> Self {
        Self::Corrupt(why)
    }
}

impl From<Error> for Invalid {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The coding of chunks.
pub(in super::super) trait Coding: Send + Sync + Sized + 'static {
    /// The name of a chunk in errors: `rze chunk`.
    fn what(&self) -> &'static str;

    /// Bytes of the longest body of a chunk that decodes to `len` bytes.
    fn longest(&self, len: usize) -> usize;

    /// Stored bytes of an uncompressed chunk of `len` bytes; zeros follow if they are fewer.
    fn raw(&self, len: usize) -> usize {
        len
    }

    /// Decodes `body` into `out`, which has the length of the chunk and is not empty.
    ///
    /// # Errors
    /// Fails if the body is invalid.
    fn decode(&self, body: &[u8], out: &mut [u8]) -> Result<(), Invalid>;

    /// Called once, before the first chunk is decoded.
    ///
    /// # Errors
    /// Fails if the stream cannot be decoded.
    fn prepare(&self, chunks: &LcChunks<Self>) -> Result<()> {
        let _ = chunks;
        Ok(())
    }

    /// See [`ByteStream::derivation`].
    fn derivation(chunks: Arc<LcChunks<Self>>) -> Option<Derivation> {
        let _ = chunks;
        None
    }
}

/// Flags in an entry of the size table and of the index: the chunk is stored uncompressed.
const RAW: u32 = 1 << 31;
const RAW_START: u64 = 1 << 63;

/// The decoded stream.
pub(in super::super) struct LcChunks<C> {
    pub(in super::super) coding: C,
    pub(in super::super) input: Arc<dyn ByteStream>,
    pub(in super::super) cx: Context,
    /// Bytes of a decoded chunk; the last may be shorter.
    chunk: u64,
    /// The offset of every chunk, with [`RAW_START`]; a last entry holds the end.
    index: Once<ArrayStore>,
    windows: BlockWindows,
}

/// Where a chunk is stored.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct ChunkPlace {
    pub(in super::super) start: u64,
    pub(in super::super) size: usize,
    pub(in super::super) is_raw: bool,
}

/// Entries of the size table read at a time.
const BATCH: u64 = 4096;

/// Bytes before the size table.
const HEAD: u64 = 8;

impl<C: Coding> LcChunks<C> {
    /// The stream stored in `input`, in chunks of `chunk` bytes. `original`: its length, if the configuration has it.
    ///
    /// # Errors
    /// Fails if `input` is too short for its size table.
    pub(in super::super) fn new(
        coding: C,
        input: Arc<dyn ByteStream>,
        chunk: u64,
        original: Option<u64>,
        cx: &Context,
    ) -> Result<Self> {
        let len = match original {
            Some(len) if len > 0 => len,
            _ => Self::stored_len(&*input, original.is_some())?,
        };
        // Checked here so that a wrong size costs nothing; the table itself is read later.
        let need = if len == 0 { 0 } else { HEAD + 4 * len.div_ceil(chunk) };
        if input.len() < need {
            return Err(Error::new(Kind::Truncated { need, have: input.len() }, "original_size"));
        }
        let windows = BlockWindows::new(len, chunk, chunk);
        Ok(Self { coding, input, cx: cx.clone(), chunk, index: Once::new(), windows })
    }

    /// The length that the stream says; `is_empty`: it must be 0.
    fn stored_len(input: &dyn ByteStream, is_empty: bool) -> Result<u64> {
        if input.is_empty() {
            return Ok(0);
        }
        let (original, _) = Self::head(input)?;
        if is_empty && original != 0 {
            return Err(differs(original, 0));
        }
        Ok(original)
    }

    /// The length of the decoded stream, and the number of chunks.
    fn head(input: &dyn ByteStream) -> Result<(u64, u64)> {
        let mut head = [0; HEAD as usize];
        if input.len() < HEAD {
            return Err(Error::new(Kind::Truncated { need: HEAD, have: input.len() }, "original size"));
        }
        input.read(0, &mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        Ok((u32::from_le_bytes([a, b, c, d]).into(), u32::from_le_bytes([e, f, g, h]).into()))
    }

    /// Number of chunks of the decoded stream.
    pub(in super::super) fn count(&self) -> u64 {
        self.windows.len().div_ceil(self.chunk)
    }

    /// The chunk offsets, computed by the first caller.
    fn index(&self) -> Result<&ArrayStore> {
        let limit = self.cx.build_limit(8 * (self.count() + 1));
        self.index.build(&self.cx.account, limit, || self.scan())
    }

    fn scan(&self) -> Result<ArrayStore> {
        let chunks = self.count();
        let (original, count) = Self::head(&*self.input)?;
        if original != self.windows.len() {
            return Err(differs(original, self.windows.len()));
        }
        if count != chunks {
            return Err(Error::corrupt(format!("{count} chunks, but {original} bytes need {chunks}"), "chunk count"));
        }
        // At most 2^20 chunks; `new` has checked that the table is complete.
        let mut starts = ArrayStore::new(8 * (chunks + 1), &self.cx.account, "chunk size table")?;
        let (mut at, mut first) = (HEAD + 4 * chunks, 0);
        while first < chunks {
            let n = BATCH.min(chunks - first);
            let mut table = ScratchBuffer::new(to_usize(4 * n, "chunk size table")?)?;
            self.input.read(HEAD + 4 * first, &mut table)?;
            for (i, entry) in (first..).zip(elements::<u32>(&table)) {
                let start = if entry & RAW == 0 { at } else { at | RAW_START };
                starts.write(8 * i, &start.to_le_bytes())?;
                at += u64::from(entry & !RAW);
                if at > self.input.len() {
                    let why = format!("chunk {i} ends at byte {at}, the stream at byte {}", self.input.len());
                    return Err(Error::corrupt(why, "chunk size table"));
                }
            }
            first += n;
        }
        starts.write(8 * chunks, &at.to_le_bytes())?;
        Ok(starts)
    }

    /// Where chunk `i` starts, or where the last ends, and whether it is stored uncompressed.
    pub(in super::super) fn start(&self, i: u64) -> Result<(u64, bool)> {
        self.index()?.entry(i).map(|start| (start & !RAW_START, start & RAW_START != 0))
    }

    /// Where chunk `i` is.
    pub(in super::super) fn place(&self, i: u64) -> Result<ChunkPlace> {
        let ((start, is_raw), (end, _)) = (self.start(i)?, self.start(i + 1)?);
        let size = end.checked_sub(start).ok_or_else(|| self.broken(i, start, "ends before it starts".into()))?;
        Ok(ChunkPlace { start, size: to_usize(size, self.coding.what())?, is_raw })
    }

    /// Bytes that chunk `i` decodes to.
    pub(in super::super) fn chunk_len(&self, i: u64) -> usize {
        // A chunk has at most a few tens of KiB.
        self.chunk.min(self.windows.len().saturating_sub(i.saturating_mul(self.chunk))) as usize
    }

    /// The error for chunk `i`, stored at `start`.
    fn broken(&self, i: u64, start: u64, why: Invalid) -> Error {
        let what = self.coding.what();
        let error = match why {
            Invalid::Corrupt(why) => Error::corrupt(format!("{why} (stored at byte {start} of the stream)"), what),
            Invalid::Undefined(why) => {
                Error::unsupported(format!("{why} (stored at byte {start} of the stream)"), what)
            }
            Invalid::Failed(error) => error,
        };
        error.within(format!("chunk {i}"))
    }

    /// Decodes chunk `i` into `out`, which has the length of the chunk.
    fn decode_chunk(&self, i: u64, out: &mut [u8]) -> Result<()> {
        let place = self.place(i)?;
        let broken = |why| self.broken(i, place.start, why);
        if place.is_raw {
            let (stored, rest) = out.split_at_mut(self.coding.raw(out.len()).min(out.len()));
            if place.size != stored.len() {
                return Err(broken("an uncompressed chunk has the wrong length".into()));
            }
            rest.fill(0);
            return self.input.read(place.start, stored);
        }
        if place.size > self.coding.longest(out.len()) {
            return Err(broken("exceeds the maximum length of a chunk".into()));
        }
        let mut body = ScratchBuffer::new(place.size)?;
        self.input.read(place.start, &mut body)?;
        self.coding.decode(&body, out).map_err(broken)
    }
}

fn differs(stream: u64, config: u64) -> Error {
    Error::corrupt(format!("{stream} in the stream, {config} in the configuration"), "original size")
}

impl<C: Coding> Blockwise for LcChunks<C> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        self.coding.prepare(self)?;
        let chunk = to_usize(self.chunk, self.coding.what())?;
        (start / self.chunk..).zip(out.chunks_mut(chunk)).try_for_each(|(i, out)| self.decode_chunk(i, out))
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        C::derivation(self)
    }
}

/// Bytes of the longest body with bitmaps, of a chunk that decodes to `len` bytes: every word, complete bitmaps of a
/// full chunk, and a few bytes of parameters.
pub(in super::super) fn with_bitmaps(len: usize) -> usize {
    len.saturating_add(2048 + 256 + 32 + 4 + 8)
}
