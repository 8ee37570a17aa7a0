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

use crate::bytes::{Cursor, to_u64};
use crate::checksum::{ChecksumGate, Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::format::{Blob, Layout};
use crate::limits::{Budget, Charge, Limits};
use crate::once::Once;
use crate::source::Source;

use super::block::{self, FileExtent, Work};
use super::dict::Dictionary;
use super::hash;
use super::header::{Version, check};
use super::index::Frame;

/// Approximate size of a gate.
const GATE: usize = 256;
/// Target size of a piece that consists of several small blocks.
const PIECE: u64 = 256 << 10;

/// A frame and its state.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) frame: Arc<Frame>,
    /// The dictionary that the header names, or why it is missing.
    pub(super) dictionary: Option<Result<Arc<Dictionary>>>,
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
    Ends(Vec<u64>),
}

/// All frames of a file as one stream of bytes.
#[derive(Debug)]
pub(super) struct Stream {
    source: Arc<Source>,
    pub(super) parts: Vec<Part>,
    layout: Layout,
    verify: Verify,
    threads: Threads,
    idle: Mutex<Vec<Work>>,
    /// For the gates of the parts, which outlive a borrow.
    me: Weak<Stream>,
    _charge: Charge,
}

impl Stream {
    /// The stream of `frames`; `dictionary` finds the dictionary that the header of a frame names.
    ///
    /// # Errors
    /// Fails if `dictionary` fails, if there are more pieces than the limits allow, or if the budget is exhausted.
    pub(super) fn new(
        source: &Arc<Source>,
        frames: Vec<Frame>,
        (verify, threads): (&Verify, &Threads),
        limits: &Limits,
        budget: &Budget,
        mut dictionary: impl FnMut(&Frame) -> Result<Option<Result<Arc<Dictionary>>>>,
    ) -> Result<Arc<Self>> {
        let (mut start, mut first_piece, mut first_block) = (0_u64, 0_u64, 0_u64);
        let mut parts = Vec::with_capacity(frames.len());
        for frame in frames {
            let frame = Arc::new(frame);
            let gate = frame.header.checksums.then(|| {
                let (source, frame) = (Arc::clone(source), Arc::clone(&frame));
                ChecksumGate::new(verify.clone(), threads, move || digest(&source, &frame))
            });
            let dictionary = dictionary(&frame)?;
            let (total, pieces, blocks) =
                (frame.footer.total, frame.footer.total.div_ceil(piece(&frame)), frame.count());
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
            first_piece = Limits::check(first_piece.saturating_add(pieces), limits.entries, "pieces")?;
            first_block = first_block.saturating_add(blocks);
        }
        let several = if parts.len() == 1 { 0 } else { first_piece };
        let frames = to_u64(parts.len()).saturating_mul(to_u64(size_of::<Part>() + GATE));
        let charge = budget.charge(several.saturating_mul(8).saturating_add(frames), "piece table")?;
        let layout = match parts.as_slice() {
            [part] => Layout::Uniform { len: part.frame.footer.total, piece: piece(&part.frame) },
            _ => Layout::Ends(parts.iter().flat_map(piece_ends).collect()),
        };
        let (source, verify, threads) = (Arc::clone(source), verify.clone(), threads.clone());
        let idle = Mutex::default();
        Ok(Arc::new_cyclic(|me| Self { source, parts, layout, verify, threads, idle, me: me.clone(), _charge: charge }))
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
        Ok(Self::range_in(part, self.sizes(part)?, index))
    }

    fn range_in(part: &Part, sizes: &Sizes, index: u64) -> Range<u64> {
        match sizes {
            Sizes::Full => {
                let (size, total) = (u64::from(part.frame.header.block_size), part.frame.footer.total);
                let start = index.saturating_mul(size).min(total);
                start..start.saturating_add(size).min(total)
            }
            Sizes::Ends(ends) => {
                let end = |i: u64| usize::try_from(i).ok().and_then(|i| ends.get(i).copied());
                index.checked_sub(1).map_or(Some(0), end).unwrap_or(0)..end(index).unwrap_or(0)
            }
        }
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
        let mut ends = Vec::new();
        let mut end = 0_u64;
        for index in 0..frame.count() {
            end = end.saturating_add(size(index)?);
            ends.push(end);
        }
        let before_last = last.checked_sub(1).and_then(|i| ends.get(i as usize)).copied().unwrap_or(0);
        match end {
            _ if end == total => Ok(Sizes::Ends(ends)),
            // Only the last block is corrupt.
            _ if as_written && before_last == last * block_size => Ok(Sizes::Full),
            _ => Err(Error::corrupt(format!("the blocks decode to {end} bytes, not to {total}"), "total")
                .at(frame.footer.total_at)),
        }
    }

    /// Decodes a block into the front of `dst`; returns its decoded size.
    fn decode_block(&self, part: &Part, index: u64, dst: &mut [u8]) -> Result<usize> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work = idle().pop().unwrap_or_default();
        let dictionary = part.dictionary.as_ref();
        let len = block::decode(&self.source, &part.frame, index, dictionary, &mut work, dst);
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
            Sizes::Ends(ends) => to_u64(ends.partition_point(|&end| end <= from)),
        };
        let mut filled = 0;
        while filled < dst.len() {
            let block = Self::range_in(part, sizes, index);
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

/// Piece ends of a part.
fn piece_ends(part: &Part) -> impl Iterator<Item = u64> {
    let (start, total, piece) = (part.start, part.frame.footer.total, piece(&part.frame));
    (1..=total.div_ceil(piece)).map(move |i| start + i.saturating_mul(piece).min(total))
}

/// Verifies the hash over the block checksums of `frame`; reads only the checksums.
fn digest(source: &Source, frame: &Frame) -> Result<()> {
    let mut checksums = Vec::new();
    for index in 0..frame.count() {
        checksums.push(stored_checksum(source, frame, index)?);
    }
    let what = if frame.header.version < Version::V9 { "global hash" } else { "digest" };
    check(frame.footer.digest, hash::digest(frame.header.version, checksums), what, frame.footer.digest_at)
}

/// The stored checksum of block `index`.
pub(super) fn stored_checksum(source: &Source, frame: &Frame, index: u64) -> Result<u32> {
    let block = FileExtent::find(frame, index)?;
    let at = block.at.plus(block.size.saturating_sub(4));
    let mut bytes = [0; 4];
    source.read(at, &mut bytes, "block checksum")?;
    Cursor::new(&bytes, at).u32_le("block checksum")
}
