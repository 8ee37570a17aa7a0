//! The decoded bytes of a file, over all frames, as a blob.
//!
//! Reference: sections 2.2, 6.1, 7 and 11.4 of the ZXC reference.
//!
//! Decoded block sizes are not stored. Every known writer fills all blocks but the last. This is certain once the last
//! block decodes to exactly the rest of the total of the frame, because no block decodes to more than a full one. So
//! the first read of a frame decodes its last block too. If it does not match, all blocks are decoded once to learn
//! their sizes.
//!
//! Checked: before the first byte of a frame, subject to `verify`, the hash over its block checksums; before the bytes
//! of a block, its own checksum.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::account::{Account, work};
use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::format::{Blob, Layout, Options};
use crate::limits::{Charge, Limits};
use crate::once::Once;
use crate::source::{SmallReads, Source};

use super::block::{self, FileExtent, Work};
use super::dict::{Library, Required};
use super::hash::Digest;
use super::header::{Version, check};
use super::index::Frame;
use super::offset_list::OffsetList;

/// Memory of a frame besides its index: its state, and two gates of about this size.
const PART: usize = size_of::<Part>() + 2 * 256;
/// Limit on the work of learning block sizes: bytes, or if that is more, decoded bytes for each stored byte.
const SIZING: (u64, u64) = (1 << 30, 256);
/// Target size of a piece that consists of several small blocks.
const PIECE: u64 = 256 << 10;

/// A frame and its state.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) frame: Arc<Frame>,
    pub(super) dictionary: Required,
    /// Verifies the hash over the block checksums, if there are any.
    pub(super) gate: Option<ChecksumGate>,
    sizes: Once<Sizes>,
    /// Determines `sizes`, which needs decoding.
    sizing: OnceLock<ChecksumGate>,
    /// Offset of the decoded bytes of the frame in those of the file.
    pub(super) start: u64,
    /// The number of its first piece.
    first_piece: u64,
    /// The number of its first block.
    pub(super) first_block: u64,
}

/// The decoded block ends of a frame.
#[derive(Debug)]
enum Sizes {
    /// All blocks are full, except maybe the last.
    Full,
    /// The end of each block.
    Ends(OffsetList),
}

/// All frames of a file as one stream of bytes.
#[derive(Debug)]
pub(super) struct Stream {
    source: Arc<Source>,
    pub(super) parts: Vec<Part>,
    layout: Layout,
    verify: Verify,
    threads: Threads,
    account: Account,
    idle: Mutex<Vec<Work>>,
    /// For the gates of the parts, which outlive a borrow.
    me: Weak<Stream>,
    _charge: Charge,
}

impl Stream {
    /// The stream of `frames`.
    ///
    /// # Errors
    /// Fails if a dictionary file cannot be read, if there are more pieces than the limits allow, or if the account has
    /// no room.
    pub(super) fn new(source: &Arc<Source>, frames: Vec<Frame>, options: &Options) -> Result<Arc<Self>> {
        let mut dictionaries = Library::new(&options.dicts);
        let count = to_u64(frames.len());
        let several = if count == 1 { 0 } else { frames.iter().fold(0_u64, |n, f| n.saturating_add(pieces(f))) };
        Limits::check(several, options.limits.entries, "pieces")?;
        // The table of pieces is copied once when it is complete.
        let table = several.saturating_mul(2 * to_u64(size_of::<u64>()));
        let charge = options.account.charge(count.saturating_mul(to_u64(PART)).saturating_add(table), "piece table")?;
        let (mut start, mut first_piece, mut first_block) = (0_u64, 0_u64, 0_u64);
        let mut parts = Vec::with_capacity(frames.len());
        for frame in frames {
            let frame = Arc::new(frame);
            let gate = frame.header.checksums.then(|| {
                let (source, frame) = (Arc::clone(source), Arc::clone(&frame));
                ChecksumGate::new(options.verify.clone(), &options.threads, move || digest(&source, &frame))
            });
            let dictionary = match frame.header.dict_id {
                None => Required::None,
                Some(id) => dictionaries.find(id, frame.header.version).map_err(|e| e.at(frame.at.plus(7)))?,
            };
            let (total, pieces, blocks) = (frame.footer.total, pieces(&frame), frame.count());
            let part = Part {
                frame,
                dictionary,
                gate,
                sizes: Once::new(),
                sizing: OnceLock::new(),
                start,
                first_piece,
                first_block,
            };
            parts.push(part);
            let too_long = || Error::corrupt("the frames give more than 2^64 bytes", "total");
            start = start.checked_add(total).ok_or_else(too_long)?;
            first_piece = first_piece.saturating_add(pieces);
            first_block = first_block.saturating_add(blocks);
        }
        let layout = match parts.as_slice() {
            [part] => Layout::Uniform { len: part.frame.footer.total, piece: piece(&part.frame) },
            _ => {
                let mut ends = Vec::with_capacity(to_usize(several, "pieces")?);
                ends.extend(parts.iter().flat_map(piece_ends));
                Layout::Ends(ends.into())
            }
        };
        let Options { verify, threads, account, .. } = options;
        let (source, verify, threads, account) = (Arc::clone(source), verify.clone(), threads.clone(), account.clone());
        let idle = Mutex::default();
        let stream = |me: &Weak<Self>| Self {
            source,
            parts,
            layout,
            verify,
            threads,
            account,
            idle,
            me: me.clone(),
            _charge: charge,
        };
        Ok(Arc::new_cyclic(stream))
    }

    /// Number of data blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.parts.last().map_or(0, |p| p.first_block.saturating_add(p.frame.count()))
    }

    /// Finds block `index`: the number of its part, the part, and the number of the block in it.
    pub(super) fn block(&self, index: u64) -> Result<(usize, &Part, u64)> {
        // If several parts have the same first block, all but the last are empty.
        let number = self.parts.partition_point(|p| p.first_block <= index).saturating_sub(1);
        let part = self.parts.get(number).ok_or_else(|| Error::corrupt("there are fewer blocks", "block"))?;
        Ok((number, part, index.saturating_sub(part.first_block)))
    }

    /// The gate to pass before the payload of block `index` of `part` is served as stored; `None` if no checksum covers
    /// it.
    pub(super) fn payload_gate(&self, part: &Part, index: u64) -> Option<ChecksumGate> {
        block::covers_payloads(&part.frame).then(|| {
            let (source, frame) = (Arc::clone(&self.source), Arc::clone(&part.frame));
            let number = part.first_block.saturating_add(index);
            let check = move || block::check_payload(&source, &frame, index);
            ChecksumGate::new(self.verify.clone(), &self.threads, move || {
                check().map_err(|e| e.within(format_args!("block {number}")))
            })
        })
    }

    /// The decoded range of block `index` of `part`, relative to the part.
    ///
    /// # Errors
    /// Fails if block sizes had to be determined and a block is corrupt.
    pub(super) fn block_range(&self, part: &Part, index: u64) -> Result<Range<u64>> {
        Self::range_in(part, self.sizes(part)?, index)
    }

    fn range_in(part: &Part, sizes: &Sizes, index: u64) -> Result<Range<u64>> {
        Ok(match sizes {
            Sizes::Full => {
                let (size, total) = (u64::from(part.frame.header.block_size), part.frame.footer.total);
                let start = index.saturating_mul(size).min(total);
                start..start.saturating_add(size).min(total)
            }
            Sizes::Ends(ends) => {
                let missing = || Error::corrupt("there are fewer blocks", "block");
                let start = index.checked_sub(1).map_or(Some(0), |before| ends.get(before));
                start.ok_or_else(missing)?..ends.get(index).ok_or_else(missing)?
            }
        })
    }

    /// Determines the block sizes of `part`; `verify` calls it if not all blocks are full.
    ///
    /// # Errors
    /// Fails if all blocks had to be decoded and one is corrupt, or their sum is not the total.
    pub(super) fn check_sizes(&self, part: &Part) -> Result<()> {
        self.sizes(part).map(|_| ())
    }

    fn sizes<'a>(&self, part: &'a Part) -> Result<&'a Sizes> {
        part.sizes.get(|| self.find_sizes(part))
    }

    /// The gate that determines the block sizes of part `number`, unless they are known.
    fn sizing(&self, number: usize) -> Option<ChecksumGate> {
        let part = self.parts.get(number)?;
        if part.sizes.ready().is_some() {
            return None;
        }
        let gate = part.sizing.get_or_init(|| {
            let me = self.me.clone();
            let find = move || {
                let gone = || Error::new(Kind::NotFound, "frame");
                let stream = me.upgrade().ok_or_else(gone)?;
                stream.check_sizes(stream.parts.get(number).ok_or_else(gone)?)
            };
            ChecksumGate::new(Verify::First, &self.threads, find)
        });
        ChecksumGate::shut(Some(gate))
    }

    /// The gate to pass before bytes of part `number` are decoded, if one is still shut.
    fn shut(&self, number: usize) -> Option<ChecksumGate> {
        ChecksumGate::shut(self.parts.get(number)?.gate.as_ref()).or_else(|| self.sizing(number))
    }

    fn find_sizes(&self, part: &Part) -> Result<Sizes> {
        let (frame, total) = (&part.frame, part.frame.footer.total);
        let block_size = u64::from(frame.header.block_size);
        let as_written = part.has_full_count();
        let Some(last) = frame.count().checked_sub(1) else { return Ok(Sizes::Full) };
        let mut buffer = vec![0; frame.header.block_size as usize];
        let mut size = |index| self.decode_block(part, index, &mut buffer).map(to_u64);
        if as_written {
            match size(last) {
                Ok(n) if n == total - last * block_size => return Ok(Sizes::Full),
                Ok(_) => (),
                // Assume full blocks, so that the blocks before a corrupt last one stay readable.
                Err(e) if e.is_lasting() => return Ok(Sizes::Full),
                Err(e) => return Err(e),
            }
        }
        // Decoding many blocks may take long even if they are small.
        let limit = SIZING.0.max(frame.stored().saturating_mul(SIZING.1));
        let (mut ends, mut end) = (OffsetList::new(&self.account, frame.count())?, 0_u64);
        let decode = || {
            for index in 0..frame.count() {
                let len = size(index)?;
                work::charge(len)?;
                end = end.saturating_add(len);
                ends.push(end)?;
                if end > total {
                    break;
                }
            }
            Ok(())
        };
        work::build(&self.account, limit, decode).map_err(|e| e.at(frame.footer.total_at))?;
        let before_last = last.checked_sub(1).and_then(|before| ends.get(before)).unwrap_or(0);
        let is_whole = ends.len() == frame.count();
        match end {
            _ if is_whole && end == total => Ok(Sizes::Ends(ends)),
            // Only the last block is corrupt.
            _ if is_whole && as_written && before_last == last * block_size => Ok(Sizes::Full),
            _ => {
                let why = format!("{} blocks decode to {end} bytes, the frame to {total}", ends.len());
                Err(Error::corrupt(why, "total").at(frame.footer.total_at))
            }
        }
    }

    /// Decodes a block into the front of `dst`; returns its decoded size.
    fn decode_block(&self, part: &Part, index: u64, dst: &mut [u8]) -> Result<usize> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work = idle().pop().unwrap_or_default();
        let len = block::decode(&self.source, &part.frame, index, &part.dictionary, &mut work, dst);
        work.settle(&self.account);
        idle().push(work);
        len.map_err(|e| e.within(format_args!("block {}", part.first_block.saturating_add(index))))
    }

    /// Fills `dst` with the decoded bytes of `part` from `from` on.
    fn decode_range(&self, part: &Part, from: u64, dst: &mut [u8]) -> Result<()> {
        if let Some(gate) = &part.gate {
            gate.wait()?;
        }
        let sizes = self.sizes(part)?;
        let mut index = match sizes {
            Sizes::Full => from / u64::from(part.frame.header.block_size),
            Sizes::Ends(ends) => to_u64(ends.as_slice().partition_point(|&end| end <= from)),
        };
        let mut filled = 0;
        while filled < dst.len() {
            let block = Self::range_in(part, sizes, index)?;
            if block.is_empty() {
                // It was decoded once, to learn its size.
                index += 1;
                continue;
            }
            let skip = (from + to_u64(filled)).saturating_sub(block.start) as usize;
            let len = (block.end - block.start) as usize;
            let rest = &mut dst[filled..];
            let given = if skip == 0 && rest.len() >= len {
                self.decode_block(part, index, rest)?
            } else {
                let mut whole = vec![0; part.frame.header.block_size as usize];
                let given = self.decode_block(part, index, &mut whole)?;
                let from = whole[..given].get(skip..).unwrap_or_default();
                let n = from.len().min(rest.len());
                rest[..n].copy_from_slice(&from[..n]);
                given
            };
            if given != len {
                let at = FileExtent::find(&part.frame, index)?.at;
                let why = format!("it decodes to {given} bytes, not to {len}");
                return Err(Error::corrupt(why, format!("block {}", part.first_block + index)).at(at));
            }
            filled += (len - skip).min(rest.len());
            index += 1;
        }
        Ok(())
    }
}

impl Part {
    /// Whether a piece can contain more than one block.
    pub(super) fn shares_pieces(&self) -> bool {
        piece(&self.frame) > self.frame.header.block_size.into()
    }

    /// Whether the decoded ranges of the blocks are known.
    pub(super) fn is_sized(&self) -> bool {
        self.sizes.ready().is_some()
    }

    /// Whether the number of blocks is that of a frame of full blocks, as written by every known writer.
    pub(super) fn has_full_count(&self) -> bool {
        self.frame.header.blocks_of(self.frame.footer.total) == self.frame.count()
    }
}

impl Stream {
    /// Number of the part that contains a piece.
    fn part_of(&self, piece_number: u64) -> Option<usize> {
        self.parts.partition_point(|p| p.first_piece <= piece_number).checked_sub(1)
    }
}

impl Blob for Stream {
    fn layout(&self) -> Result<Layout> {
        Ok(self.layout.clone())
    }

    fn gate(&self, piece_number: u64) -> Option<ChecksumGate> {
        self.shut(self.part_of(piece_number)?)
    }

    fn decode(&self, piece_number: u64, dst: &mut [u8]) -> Result<()> {
        let part = self.part_of(piece_number).and_then(|i| self.parts.get(i));
        let part = part.ok_or_else(|| Error::corrupt("there are fewer pieces", "piece"))?;
        let from = (piece_number - part.first_piece).saturating_mul(piece(&part.frame));
        self.decode_range(part, from, dst)
    }
}

/// A single block as a blob. Used if the block shares its piece with others, so that a corrupt neighbour does not
/// affect it, and if its decoded range is not known yet.
pub(super) struct Alone {
    pub(super) stream: Arc<Stream>,
    /// The number of the block's part.
    pub(super) part: usize,
    /// The block's number in the part.
    pub(super) index: u64,
}

impl Alone {
    /// The part, and the decoded range of the block relative to it.
    fn place(&self) -> Result<(&Part, Range<u64>)> {
        let part = self.stream.parts.get(self.part);
        let part = part.ok_or_else(|| Error::corrupt("there are fewer blocks", "block"))?;
        Ok((part, self.stream.block_range(part, self.index)?))
    }
}

impl Blob for Alone {
    fn layout(&self) -> Result<Layout> {
        let (_, range) = self.place()?;
        let len = range.end - range.start;
        Ok(Layout::Uniform { len, piece: len.max(1) })
    }

    fn known_len(&self) -> Option<u64> {
        let sized = self.stream.parts.get(self.part).is_some_and(Part::is_sized);
        if sized { self.layout().ok().map(|layout| layout.len()) } else { None }
    }

    fn sizing(&self) -> Option<ChecksumGate> {
        self.stream.sizing(self.part)
    }

    fn gate(&self, _: u64) -> Option<ChecksumGate> {
        self.stream.shut(self.part)
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        let (part, range) = self.place()?;
        self.stream.decode_range(part, range.start, dst)
    }
}

/// Size of a piece: at least a block.
fn piece(frame: &Frame) -> u64 {
    PIECE.max(frame.header.block_size.into())
}

/// Number of pieces of a frame.
fn pieces(frame: &Frame) -> u64 {
    frame.footer.total.div_ceil(piece(frame))
}

/// Piece ends of a part.
fn piece_ends(part: &Part) -> impl Iterator<Item = u64> {
    let (start, total, piece) = (part.start, part.frame.footer.total, piece(&part.frame));
    (1..=pieces(&part.frame)).map(move |i| start + i.saturating_mul(piece).min(total))
}

/// Verifies the hash over the block checksums of `frame`; reads only the checksums.
fn digest(source: &Source, frame: &Frame) -> Result<()> {
    let mut checksums = SmallReads::new(source);
    let mut digest = Digest::new(frame.header.version);
    for index in 0..frame.count() {
        digest.push(stored_checksum(&mut checksums, frame, index)?);
    }
    let what = if frame.header.version < Version::V9 { "global hash" } else { "digest" };
    check(frame.footer.digest, digest.value(), what, frame.footer.digest_at)
}

/// The stored checksum of block `index`.
pub(super) fn stored_checksum(reads: &mut SmallReads, frame: &Frame, index: u64) -> Result<u32> {
    let block = FileExtent::find(frame, index)?;
    let at = block.at.plus(block.size.saturating_sub(4));
    reads.array(at, "block checksum").map(u32::from_le_bytes)
}
