//! A chunk that is opened: its header and tables are read, its items are decoded as they are asked for.
//!
//! Reference: sections 6.3 to 6.8 (layouts), 14 (random access).
//! Read: a small chunk at once; of a large one the header and the tables, then the blocks that are wanted.
//! Checked: the tables against the chunk, at opening; streams at decoding.
//! Limits: tables take at most three times what they take in the file, and are charged; a block that is larger than a
//! piece is decoded once for the pieces that share it.
#![forbid(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::account::{Buffer, Pages};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::codec::pace::STRIDE;
use crate::error::{Error, Result};
use crate::limits::{Charge, Limits, zeroed};
use crate::once::Once;
use crate::source::Source;

use super::block::{Plan, Scratch, sized};
use super::codec::{Algorithm, Contexts, Dictionary};
use super::filter::{Item, Pipeline};
use super::header::{Header, Kind, Special};
use super::memory::{ChunkKey, INDEX, Memory};
use super::table::Table;

/// A chunk is read at once if it is at most this long.
const AT_ONCE: u64 = 4096;
/// Blocks of more bytes are decoded whole, to be kept while parts of them are asked for.
pub(super) const BIG: u64 = 4 << 20;
/// The same for blocks of which only a part is asked for: larger than a piece, or in the index chunk, than the few
/// entries that are asked for at a time.
const PART: u64 = 1 << 20;
const PART_OF_INDEX: u64 = 32 << 10;
/// Bytes of tables that need not be charged.
const SMALL: u64 = 64 << 10;
/// At least a page of the system.
const PAGES: usize = 64 << 10;
/// Repeated values up to this length are kept.
const VALUE: u32 = 4096;

/// Where a chunk lies, and how many bytes it may take there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) source: Arc<Source>,
    pub(super) at: FileOffset,
    pub(super) room: u64,
}

impl Place {
    /// Reads the chunk's header alone.
    pub(super) fn header(&self) -> Result<Header> {
        let mut bytes = [0; 32];
        let len = self.room.min(self.source.len().saturating_sub(self.at.0)).min(32) as usize;
        self.source.read(self.at, &mut bytes[..len], "chunk header")?;
        Header::parse(&bytes[..len], self.at, self.room)
    }
}

/// The stored bytes of a chunk, in memory or in the file.
#[derive(Debug)]
pub(super) struct FileExtent {
    source: Arc<Source>,
    at: FileOffset,
    /// All bytes of a small chunk.
    all: Option<Vec<u8>>,
}

impl FileExtent {
    /// Where byte `pos` of the chunk lies in the file.
    pub(super) fn at(&self, pos: u64) -> FileOffset {
        self.at.plus(pos)
    }

    /// Fills `dst` from byte `pos` of the chunk on.
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

    /// `len` bytes from byte `pos` of the chunk on.
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
    /// The decoded first block, where DELTA refers to it and it is small.
    reference: Once<Vec<u8>>,
    key: ChunkKey,
    memory: Arc<Memory>,
    /// Larger blocks are kept whole where only a part of them is wanted.
    part: u64,
    /// Of the tables.
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

/// A run of one value.
#[derive(Debug)]
enum Fill {
    /// The value; empty for zeros.
    Short(Vec<u8>),
    /// A value of that many bytes, behind the header.
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

    /// The file that it is read from.
    pub(super) fn source(&self) -> &Source {
        &self.stored.source
    }

    /// The chunk's header.
    pub(super) fn header(&self) -> &Header {
        &self.plan.header
    }

    /// Decoded bytes.
    pub(super) fn len(&self) -> u64 {
        self.plan.header.nbytes.into()
    }

    /// Whether its bytes cost nothing to make: then there is nothing to check in them either.
    pub(super) fn is_fill(&self) -> bool {
        matches!(self.body, Body::Fill(_))
    }

    /// Where decoded byte `offset` is stored: its own place, or the start of what it is decoded from.
    pub(super) fn at(&self, offset: u64) -> FileOffset {
        match &self.body {
            Body::Fill(_) => self.stored.at(self.plan.header.len),
            Body::Memcpyed => self.stored.at(self.plan.header.len.saturating_add(offset)),
            Body::Blocks(table) => self.stored.at(table.stored(table.locate(offset)).0),
        }
    }

    /// Bytes of memory that it takes, or may come to take.
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

    /// Fills `dst` with the decoded bytes from `from` on; they lie inside the chunk.
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

    /// Whether a block of `len` bytes, of which `part` are wanted, is decoded into a buffer that is kept.
    fn is_kept(&self, len: u64, part: u64) -> bool {
        len > if part == len { BIG } else { self.part }
    }

    /// Puts the bytes from `skip` on of block `i` in `part`.
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
            // Pages at either end too: whoever shares them maps them again.
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

    /// Block `i`, decoded whole and kept for those who want other parts of it.
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

    /// Decodes all blocks that have bytes in `range`, `step` bytes or a block at a time, and forgets them. A large
    /// block is decoded where the range holds its first byte, so that neighbouring ranges decode it once.
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
        // VL-blocks are each written as if they were the first.
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

    /// Reads the stored bytes of `blocks`, of which the decoded bytes `wanted` are wanted, in one go, if they lie together.
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
                // It may be there already, decoded.
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

/// Stored bytes of some blocks, from byte `start` of the chunk on.
struct Run<'a> {
    stored: &'a FileExtent,
    bytes: &'a [u8],
    start: u64,
}

impl<'a> Run<'a> {
    /// The streams of block `i`: from the run, or read into `buffer`.
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
    /// What a special chunk consists of; `typesize` says how wide a NaN is.
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

/// Fills `dst` with the run of `value` from its byte `from` on.
fn repeat(value: &[u8], from: u64, dst: &mut [u8]) {
    let phase = (from % to_u64(value.len())) as usize;
    let first = dst.len().min(value.len());
    for (byte, &v) in dst[..first].iter_mut().zip(value[phase..].iter().chain(value)) {
        *byte = v;
    }
    // What is there is whole periods from here on; it can be copied.
    let mut done = first;
    while done < dst.len() {
        let n = done.min(dst.len() - done);
        dst.copy_within(..n, done);
        done += n;
    }
}

/// Fills `dst` with the bytes of a chunk that is only an entry of the index.
pub(super) fn fill_special(special: Special, typesize: u32, from: u64, dst: &mut [u8]) {
    match Fill::of(special, typesize) {
        Fill::Short(value) if !value.is_empty() => repeat(&value, from, dst),
        _ => dst.fill(0),
    }
}
