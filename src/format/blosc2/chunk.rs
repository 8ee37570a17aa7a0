//! Opened chunks: header and tables are read at open, items are decoded on demand.
//!
//! Reference: sections 6.3 to 6.8 (layouts), 14 (random access).
//! Read: small chunks whole; of large ones the header and the tables, then the blocks that are needed.
//! Checked: the tables against the chunk, at open; streams, when they are decoded.
//! Limits: tables take at most five times their stored size while they are read, three times after that, and are
//! charged; a block larger than a piece is decoded once for all pieces in it.
#![forbid(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::account::{Buffer, Pages};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::codec::pace::STRIDE;
use crate::error::{Error, Result};
use crate::limits::{Charge, Limits, zeroed};
use crate::once::Once;
use crate::source::{SmallReads, Source};

use super::block::{Plan, Scratch, sized};
use super::codec::{Algorithm, Contexts, Dictionary};
use super::filter::{Item, Pipeline};
use super::header::{Header, Kind, Special};
use super::memory::{ChunkKey, INDEX, Memory};
use super::table::Table;

/// Chunks up to this size are read whole at open.
const AT_ONCE: u64 = 4096;
/// Larger blocks are decoded whole into a buffer that is kept, even if all of the block is read.
pub(super) const BIG: u64 = 4 << 20;
/// The same limits if only a part of a block is read: about a piece, and less for the index chunk, which is read a few
/// entries at a time.
const PART: u64 = 1 << 20;
const PART_OF_INDEX: u64 = 32 << 10;
/// Tables up to this many bytes are not charged.
const SMALL: u64 = 64 << 10;
/// At least one memory page.
const PAGES: usize = 64 << 10;
/// Repeated values up to this size are kept in memory.
const VALUE: u32 = 4096;

/// Location of a chunk, and the most bytes that it may take there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) source: Arc<Source>,
    pub(super) at: FileOffset,
    pub(super) room: u64,
}

impl Place {
    /// Reads only the header of the chunk.
    pub(super) fn header(&self) -> Result<Header> {
        let mut bytes = [0; 32];
        let len = self.room.min(self.source.len().saturating_sub(self.at.0)).min(32) as usize;
        self.source.read(self.at, &mut bytes[..len], "chunk header")?;
        Header::parse(&bytes[..len], self.at, self.room)
    }
}

/// The stored bytes of a chunk: in memory if it is small, else in the file.
#[derive(Debug)]
pub(super) struct FileExtent {
    source: Arc<Source>,
    at: FileOffset,
    /// The whole chunk, if it is small.
    all: Option<Vec<u8>>,
}

impl FileExtent {
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
            None => return Err(Error::corrupt("beyond the chunk", what).at(at)),
        }
        Ok(())
    }

    /// A reader of many small fields of the chunk, at file offsets.
    pub(super) fn small_reads(&self) -> SmallReads<'_> {
        SmallReads::new(&self.source)
    }

    /// Reads `len` stored bytes from `pos` on.
    pub(super) fn get(&self, pos: u64, len: u64, what: &'static str) -> Result<Vec<u8>> {
        let have = self.source.len().saturating_sub(self.at(pos).0);
        if self.all.is_none() && len > have {
            return Err(Error::corrupt("beyond the file", what).at(self.at(pos)));
        }
        let mut bytes = zeroed(len, what)?;
        self.read(pos, &mut bytes, what)?;
        Ok(bytes)
    }
}

/// An opened chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    plan: Plan,
    stored: FileExtent,
    body: Body,
    /// The decoded first block, if DELTA refers to it and it is not large.
    reference: Once<Vec<u8>>,
    key: ChunkKey,
    memory: Arc<Memory>,
    /// Blocks larger than this are kept whole if only a part of them is read.
    part: u64,
    /// For the tables.
    charge: Option<Charge>,
}

/// The decoded first block of a chunk.
enum Reference<'a> {
    None,
    Small(&'a [u8]),
    Big(Arc<Buffer>),
}

impl Reference<'_> {
    fn get(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Small(bytes) => Some(bytes),
            Self::Big(block) => Some(block),
        }
    }
}

#[derive(Debug)]
enum Body {
    Fill(Fill),
    Memcpyed,
    Blocks(Table),
}

/// A chunk that repeats one value.
#[derive(Debug)]
enum Fill {
    /// The value; empty for zeros.
    Short(Vec<u8>),
    /// A value of this many bytes, stored after the header.
    Long(u32),
}

impl Chunk {
    /// Opens the chunk `key` at `place`.
    pub(super) fn open(place: &Place, item: &Item, key: ChunkKey) -> Result<Self> {
        let Place { source, at, room } = place;
        let there = source.len().saturating_sub(at.0).min(*room);
        let mut all = source.get(*at, there.min(AT_ONCE), "chunk header")?;
        let header = Header::parse(&all, *at, *room)?;
        let is_all = all.len() as u64 >= u64::from(header.cbytes);
        all.truncate(header.cbytes as usize);
        let stored = FileExtent { source: source.clone(), at: *at, all: is_all.then_some(all) };
        Self::of(header, stored, item, key)
    }

    fn of(header: Header, stored: FileExtent, item: &Item, key: ChunkKey) -> Result<Self> {
        let here = stored.at(0);
        let mut algorithm = Err(Error::corrupt("no codec", "codec format"));
        let mut dictionary = None;
        let mut pipeline = Pipeline::default();
        let mut charge = None;
        let body = match header.kind {
            Kind::Empty => Body::Fill(Fill::Short(Vec::new())),
            Kind::Special(Special::Value { len }) if len > VALUE => Body::Fill(Fill::Long(len)),
            Kind::Special(Special::Value { len }) => {
                Body::Fill(Fill::Short(stored.get(header.len, len.into(), "repeated value")?))
            }
            Kind::Special(special) => Body::Fill(Fill::of(special, header.typesize.into())),
            Kind::Memcpyed => Body::Memcpyed,
            Kind::Blocks | Kind::VlBlocks { .. } => {
                let size = if header.kind == Kind::Blocks { header.blocksize.into() } else { 0 };
                Limits::check(size, item.memory.block_limit, "blocksize").map_err(|e| e.at(stored.at(8)))?;
                let tables = Table::most(&header).filter(|&bytes| bytes > SMALL);
                charge = tables.map(|bytes| item.memory.account().charge(bytes, "block table")).transpose()?;
                let table = Table::read(&header, &stored, item)?;
                algorithm = Algorithm::of(header.codec);
                if let (Some(range), Ok(algorithm)) = (&table.dictionary, &algorithm) {
                    let bytes = stored.get(range.start, range.end - range.start, "dictionary")?;
                    let ready = Dictionary::new(*algorithm, bytes);
                    dictionary = Some(ready.map_err(|e| e.at(stored.at(range.start)))?);
                }
                pipeline = Pipeline::new(&header, item).map_err(|e| e.at(here))?;
                Body::Blocks(table)
            }
        };
        let plan = Plan { header, algorithm, dictionary, pipeline };
        let part = if key.chunk == INDEX { PART_OF_INDEX } else { PART };
        let (reference, memory) = (Once::new(), Arc::clone(&item.memory));
        Ok(Self { plan, stored, body, reference, key, memory, part, charge })
    }

    /// The file that the chunk is read from.
    pub(super) fn source(&self) -> &Source {
        &self.stored.source
    }

    /// The chunk's header.
    pub(super) fn header(&self) -> &Header {
        &self.plan.header
    }

    /// Decoded size in bytes.
    pub(super) fn len(&self) -> u64 {
        self.plan.header.nbytes.into()
    }

    /// Whether the chunk repeats one value: then there are no streams to verify.
    pub(super) fn is_fill(&self) -> bool {
        matches!(self.body, Body::Fill(_))
    }

    /// File offset of decoded byte `offset`, or of the block that it is decoded from.
    pub(super) fn at(&self, offset: u64) -> FileOffset {
        match &self.body {
            Body::Fill(_) => self.stored.at(self.plan.header.len),
            Body::Memcpyed => self.stored.at(self.plan.header.len.saturating_add(offset)),
            Body::Blocks(table) => self.stored.at(table.stored(table.locate(offset)).0),
        }
    }

    /// Most bytes of memory that the opened chunk can take.
    pub(super) fn cost(&self) -> u64 {
        let block = u64::from(self.plan.header.blocksize);
        let mut cost = to_u64(size_of::<Self>()) + self.stored.all.as_ref().map_or(0, |all| to_u64(all.len()));
        if let Body::Blocks(table) = &self.body {
            cost += if self.charge.is_none() { table.cost() } else { 0 };
            cost += if self.plan.pipeline.has_delta() && block <= BIG { block } else { 0 };
            cost += table.dictionary.as_ref().map_or(0, |_| 64 << 10);
        }
        cost
    }

    /// Fills `dst` with the decoded bytes from `from` on. The range must be inside the chunk.
    pub(super) fn read(&self, from: u64, dst: &mut [u8]) -> Result<()> {
        match &self.body {
            _ if dst.is_empty() => Ok(()),
            Body::Fill(fill) => fill.read(&self.stored, self.plan.header.len, from, dst),
            Body::Memcpyed => self.stored.read(self.plan.header.len.saturating_add(from), dst, "memcpyed bytes"),
            Body::Blocks(table) => self.read_blocks(table, from, dst),
        }
    }

    fn read_blocks(&self, table: &Table, from: u64, dst: &mut [u8]) -> Result<()> {
        let last = table.locate(from + (to_u64(dst.len()) - 1));
        let first = table.locate(from);
        let reference = if self.needs_reference() && last > 0 { self.reference(table)? } else { Reference::None };
        self.memory.scratch(|scratch| {
            let mut stored = std::mem::take(&mut scratch.stored);
            let run = self.fetch(table, first..=last, from..from + to_u64(dst.len()), &mut stored);
            let mut rest = dst;
            let result = run.and_then(|run| {
                for i in first..=last {
                    let (start, end) = table.decoded(i);
                    let skip = (from.max(start) - start) as usize;
                    let len = rest.len().min((end - start) as usize - skip);
                    let (part, more) = std::mem::take(&mut rest).split_at_mut(len);
                    rest = more;
                    match (i, reference.get()) {
                        (0, Some(block)) => part.copy_from_slice(&block[skip..skip + len]),
                        (_, reference) => self.part(table, i, &run, reference, skip, part, scratch)?,
                    }
                }
                Ok(())
            });
            scratch.stored = stored;
            result
        })
    }

    /// Whether a block of `len` bytes, of which `part` are read, is decoded into a buffer that is kept.
    fn is_kept(&self, len: u64, part: u64) -> bool {
        len > if part == len { BIG } else { self.part }
    }

    /// Fills `part` with the bytes of block `i` from `skip` on.
    #[expect(clippy::too_many_arguments, reason = "what a block needs, and where a part of it goes")]
    fn part(
        &self,
        table: &Table,
        i: usize,
        run: &Run<'_>,
        reference: Option<&[u8]>,
        skip: usize,
        part: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (start, end) = table.decoded(i);
        let (len, short) = ((end - start) as usize, table.is_short(i));
        let within = |e: Error| e.within(format_args!("block {i}"));
        if self.is_kept(to_u64(len), to_u64(part.len())) {
            let block = self.kept(table, i, reference).map_err(within)?;
            part.copy_from_slice(&block[skip..skip + part.len()]);
            // Release the pages at both ends too: a later reader of the neighbouring bytes maps them again.
            block.release(skip.saturating_sub(PAGES)..(skip + part.len() + PAGES).min(len));
            return Ok(());
        }
        let mut buffer = Vec::new();
        if part.len() == len {
            let cur = run.cursor(table, i, &mut buffer)?;
            return self.plan.decode(cur, short, reference, part, scratch).map_err(within);
        }
        let mut whole = std::mem::take(&mut scratch.whole);
        let result = sized(&mut whole, len, "block").and_then(|whole| {
            let cur = run.cursor(table, i, &mut buffer)?;
            self.plan.decode(cur, short, reference, whole, scratch).map_err(within)?;
            part.copy_from_slice(&whole[skip..skip + part.len()]);
            Ok(())
        });
        scratch.whole = whole;
        result
    }

    /// Block `i`, decoded whole and kept for reads of its other parts.
    fn kept(&self, table: &Table, i: usize, reference: Option<&[u8]>) -> Result<Arc<Buffer>> {
        self.memory.block((self.key, i), || {
            let (start, end) = table.decoded(i);
            let (len, short) = ((end - start) as usize, table.is_short(i));
            let (from, to) = table.stored(i);
            self.plan.survey(&self.stored, from..to, len, short)?;
            let have = self.stored.source.len().saturating_sub(self.stored.at(from).0);
            if self.stored.all.is_none() && to - from > have {
                return Err(Error::corrupt("beyond the file", "block").at(self.stored.at(from)));
            }
            let lens = [to_u64(len), to_u64(self.plan.aside(len)), to - from];
            let ([mut block, mut aside, mut stored], _active) = self.memory.buffers(lens)?;
            let pages = [block.pages(), aside.pages(), stored.pages()];
            let mut pace = || pages.iter().for_each(Pages::release);
            let mut at = from;
            for bytes in stored.chunks_mut(STRIDE) {
                self.stored.read(at, bytes, "block")?;
                at += to_u64(bytes.len());
                pace();
            }
            let cur = Cursor::new(&stored, self.stored.at(from));
            let mut contexts = Contexts::default();
            self.plan.decode_with(cur, short, reference, &mut block, &mut aside, &mut contexts, &mut pace)?;
            pace();
            Ok(block)
        })
    }

    /// Decodes all blocks that overlap `range`, at most `step` bytes or one block at a time, and discards the result. A
    /// large block is decoded only if `range` contains its first byte, so that adjacent ranges decode it once.
    pub(super) fn verify(&self, range: Range<u64>, step: u64) -> Result<()> {
        let Body::Blocks(table) = &self.body else {
            return self.read_in_steps(range, step, &mut Vec::new());
        };
        let mut buffer = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let mut i = table.locate(at);
            let (start, mut end) = table.decoded(i);
            if end - start > BIG {
                if start >= range.start {
                    let wants = self.needs_reference() && i > 0;
                    let reference = if wants { self.reference(table)? } else { Reference::None };
                    self.kept(table, i, reference.get()).map_err(|e| e.within(format_args!("block {i}")))?;
                }
                at = end;
                continue;
            }
            while end < range.end && end - at < step {
                i += 1;
                let (start, next) = table.decoded(i);
                if next - start > BIG {
                    break;
                }
                end = next;
            }
            end = end.min(range.end);
            self.read_in_steps(at..end, end - at, &mut buffer)?;
            at = end;
        }
        Ok(())
    }

    fn read_in_steps(&self, range: Range<u64>, step: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let mut from = range.start;
        while from < range.end {
            let len = step.min(range.end - from);
            let bytes = sized(buffer, len as usize, "piece")?;
            self.read(from, bytes)?;
            from += len;
        }
        Ok(())
    }

    fn needs_reference(&self) -> bool {
        // DELTA treats each VL-block as a first block.
        self.plan.pipeline.has_delta() && !matches!(self.plan.header.kind, Kind::VlBlocks { .. })
    }

    /// The decoded first block.
    fn reference(&self, table: &Table) -> Result<Reference<'_>> {
        let within = |e: Error| e.within("block 0");
        let (start, end) = table.decoded(0);
        if end - start > BIG {
            return self.kept(table, 0, None).map(Reference::Big).map_err(within);
        }
        let make = || {
            let (len, short) = ((end - start) as usize, table.is_short(0));
            let mut buffer = Vec::new();
            let cur = Run { stored: &self.stored, bytes: &[], start: 0 }.cursor(table, 0, &mut buffer)?;
            let mut block = zeroed(to_u64(len), "block")?;
            self.memory.scratch(|scratch| self.plan.decode(cur, short, None, &mut block, scratch))?;
            Ok(block)
        };
        self.reference.get(|| make().map_err(within)).map(|block| Reference::Small(block))
    }

    /// Reads the stored bytes of `blocks` at once if they are close together and none is a kept block. `wanted` is the
    /// range of decoded bytes to be read.
    fn fetch<'a>(
        &'a self,
        table: &Table,
        blocks: RangeInclusive<usize>,
        wanted: Range<u64>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Run<'a>> {
        if let Some(all) = &self.stored.all {
            return Ok(Run { stored: &self.stored, bytes: all, start: 0 });
        }
        let mut span = (u64::MAX, 0);
        let mut sum = 0;
        for i in blocks {
            let (start, end) = table.decoded(i);
            let part = end.min(wanted.end) - start.max(wanted.start);
            if self.is_kept(end - start, part) {
                // It may already be decoded.
                return Ok(Run { stored: &self.stored, bytes: &[], start: 0 });
            }
            let (start, end) = table.stored(i);
            span = (span.0.min(start), span.1.max(end));
            sum += end - start;
        }
        if span.1 - span.0 > 2 * sum {
            return Ok(Run { stored: &self.stored, bytes: &[], start: 0 });
        }
        if let Some(bytes) = self.stored.source.as_slice(self.stored.at(span.0), span.1 - span.0) {
            return Ok(Run { stored: &self.stored, bytes, start: span.0 });
        }
        let bytes = sized(buffer, (span.1 - span.0) as usize, "blocks")?;
        let bytes = &mut bytes[..(span.1 - span.0) as usize];
        self.stored.read(span.0, bytes, "blocks")?;
        Ok(Run { stored: &self.stored, bytes, start: span.0 })
    }
}

/// The stored bytes of some blocks; `start` is their position in the chunk.
struct Run<'a> {
    stored: &'a FileExtent,
    bytes: &'a [u8],
    start: u64,
}

impl<'a> Run<'a> {
    /// The streams of block `i`: from these bytes, or else read into `buffer`.
    fn cursor<'b>(&self, table: &Table, i: usize, buffer: &'b mut Vec<u8>) -> Result<Cursor<'b>>
    where
        'a: 'b,
    {
        let (start, end) = table.stored(i);
        let at = self.stored.at(start);
        let inside =
            start.checked_sub(self.start).and_then(|s| Some(s as usize..(end.checked_sub(self.start)?) as usize));
        if let Some(bytes) = inside.and_then(|range| self.bytes.get(range)) {
            return Ok(Cursor::new(bytes, at));
        }
        *buffer = self.stored.get(start, end - start, "block")?;
        Ok(Cursor::new(buffer, at))
    }
}

impl Fill {
    /// The value that a special chunk repeats; `typesize` is the width of a NaN.
    fn of(special: Special, typesize: u32) -> Self {
        Self::Short(match (special, typesize) {
            (Special::Nan, 4) => 0x7fc0_0000_u32.to_le_bytes().to_vec(),
            (Special::Nan, 8) => 0x7ff8_0000_0000_0000_u64.to_le_bytes().to_vec(),
            _ => Vec::new(),
        })
    }

    fn read(&self, stored: &FileExtent, header: u64, from: u64, dst: &mut [u8]) -> Result<()> {
        match self {
            Self::Short(value) if value.iter().all(|&b| b == 0) => dst.fill(0),
            Self::Short(value) => repeat(value, from, dst),
            Self::Long(len) => {
                let mut from = from % u64::from(*len);
                let mut rest = dst;
                while !rest.is_empty() {
                    let n = rest.len().min((u64::from(*len) - from) as usize);
                    let (part, more) = rest.split_at_mut(n);
                    stored.read(header + from, part, "repeated value")?;
                    (rest, from) = (more, 0);
                }
            }
        }
        Ok(())
    }
}

/// Fills `dst` with repetitions of `value`, as from byte `from` of the chunk on.
fn repeat(value: &[u8], from: u64, dst: &mut [u8]) {
    let phase = (from % to_u64(value.len())) as usize;
    let first = dst.len().min(value.len());
    for (byte, &v) in dst[..first].iter_mut().zip(value[phase..].iter().chain(value)) {
        *byte = v;
    }
    // From here on `dst` begins with whole periods, which can be copied.
    let mut done = first;
    while done < dst.len() {
        let n = done.min(dst.len() - done);
        dst.copy_within(..n, done);
        done += n;
    }
}

/// Fills `dst` with the bytes of a chunk that exists only as an index entry.
pub(super) fn fill_special(special: Special, typesize: u32, from: u64, dst: &mut [u8]) {
    match Fill::of(special, typesize) {
        Fill::Short(value) if !value.is_empty() => repeat(&value, from, dst),
        _ => dst.fill(0),
    }
}
