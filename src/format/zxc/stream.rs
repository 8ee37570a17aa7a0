//! The decoded bytes of a file: windows of about 256 KiB or a block, over all frames.
//!
//! Reference: sections 2.2, 6.1, 7 and 11.4 of the ZXC reference.
//!
//! Where a block's bytes stand among the decoded ones is not stored. Every library writer fills all
//! blocks but the last; that this holds is known once the last block gives just what is missing to the
//! frame's total, because no block gives more than a full one. So the first read of a frame decodes its
//! last block too. Where it does not hold, all blocks are decoded once to learn their sizes.
//!
//! Checked: before a frame's first byte, as `verify` says, the hash over its block checksums; before a
//! block's bytes, its own checksum.
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

/// About what a gate takes.
const GATE: usize = 256;
/// Small blocks share a piece of this many bytes.
const PIECE: u64 = 256 << 10;

/// A frame and what is found out about it while it is read.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) frame: Arc<Frame>,
    /// The dictionary that its header asks for, or why it is not to be had.
    pub(super) dictionary: Option<Result<Arc<Dictionary>>>,
    /// The hash over its block checksums, where it has them.
    pub(super) gate: Option<ChecksumGate>,
    sizes: Once<Sizes>,
    /// Finds out the sizes, which means to decode.
    sizing: OnceLock<ChecksumGate>,
    /// Where its bytes start among those of the file.
    pub(super) start: u64,
    /// The number of its first piece.
    first_piece: u64,
    /// The number of its first block.
    pub(super) first_block: u64,
}

/// Where blocks end among the decoded bytes of their frame.
#[derive(Debug)]
enum Sizes {
    /// All are full, except perhaps the last.
    Full,
    /// Here.
    Ends(Vec<u64>),
}

/// All frames of a file, as one stream of bytes.
#[derive(Debug)]
pub(super) struct Stream {
    source: Arc<Source>,
    pub(super) parts: Vec<Part>,
    layout: Layout,
    verify: Verify,
    threads: Threads,
    idle: Mutex<Vec<Work>>,
    /// For the gates of its parts.
    me: Weak<Stream>,
    _charge: Charge,
}

impl Stream {
    /// The stream of `frames`; `dictionary` gives what a frame's header asks for.
    ///
    /// # Errors
    /// Those of `dictionary`, and when there are more pieces than the limits allow.
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

    /// The number of data blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.parts.last().map_or(0, |p| p.first_block.saturating_add(p.frame.count()))
    }

    /// The number of the part that block `index` belongs to, the part, and the block's number there.
    pub(super) fn block(&self, index: u64) -> Result<(usize, &Part, u64)> {
        // Of several with the same first block all but the last are empty.
        let number = self.parts.partition_point(|p| p.first_block <= index).saturating_sub(1);
        let part = self.parts.get(number).ok_or_else(|| Error::corrupt("there are fewer blocks", "block"))?;
        Ok((number, part, index.saturating_sub(part.first_block)))
    }

    /// What has to hold before the payload of block `index` of `part` is served as it is: nothing where
    /// no checksum covers it.
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

    /// The decoded bytes of block `index` of `part`, counted from the start of the part.
    ///
    /// # Errors
    /// Where the block sizes had to be found out and a block is broken.
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

    /// Finds out where the blocks of `part` end: what `verify` asks where blocks are not all full.
    ///
    /// # Errors
    /// When all blocks had to be decoded and one is broken, or their sum is not the total.
    pub(super) fn check_sizes(&self, part: &Part) -> Result<()> {
        self.sizes(part).map(|_| ())
    }

    fn sizes<'a>(&self, part: &'a Part) -> Result<&'a Sizes> {
        part.sizes.get(|| self.find_sizes(part))
    }

    /// What finds out the sizes of the blocks of part `number`, if nobody has yet.
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

    /// What has to be decided before bytes of part `number` are decoded, if it is not yet.
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
                // Nothing speaks against it: the blocks before stay readable.
                Err(_) => return Ok(Sizes::Full),
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
            // Only the last block is wrong.
            _ if as_written && before_last == last * block_size => Ok(Sizes::Full),
            _ => Err(Error::corrupt(format!("the blocks decode to {end} bytes, not to {total}"), "total")
                .at(frame.footer.total_at)),
        }
    }

    /// Decodes a block into the front of `dst`; returns its bytes.
    fn decode_block(&self, part: &Part, index: u64, dst: &mut [u8]) -> Result<usize> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work = idle().pop().unwrap_or_default();
        let dictionary = part.dictionary.as_ref();
        let len = block::decode(&self.source, &part.frame, index, dictionary, &mut work, dst);
        idle().push(work);
        len.map_err(|e| e.within(format_args!("block {}", part.first_block.saturating_add(index))))
    }

    /// Fills `dst` with the bytes of `part` from `from` on.
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
    /// Whether pieces hold more than one block.
    pub(super) fn shares_pieces(&self) -> bool {
        piece(&self.frame) > self.frame.header.block_size.into()
    }

    /// Whether it is known where the blocks stand among the decoded bytes.
    pub(super) fn is_sized(&self) -> bool {
        self.sizes.ready().is_some()
    }

    /// Whether there are as many blocks as full ones need: what every library writer gives.
    pub(super) fn has_full_count(&self) -> bool {
        self.frame.header.blocks_of(self.frame.footer.total) == self.frame.count()
    }
}

impl Stream {
    /// The number of the part that a piece is of.
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

/// One block by itself: where it shares its piece with others, so that a broken neighbour does not matter to it, and
/// where it is not known yet which bytes are its.
pub(super) struct Alone {
    pub(super) stream: Arc<Stream>,
    /// The number of the block's part.
    pub(super) part: usize,
    /// The block's number in the part.
    pub(super) index: u64,
}

impl Alone {
    /// Its part, and its decoded bytes, counted from the start of that.
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

/// Bytes of a piece: at least a block.
fn piece(frame: &Frame) -> u64 {
    PIECE.max(frame.header.block_size.into())
}

/// Where the pieces of a part end.
fn piece_ends(part: &Part) -> impl Iterator<Item = u64> {
    let (start, total, piece) = (part.start, part.frame.footer.total, piece(&part.frame));
    (1..=total.div_ceil(piece)).map(move |i| start + i.saturating_mul(piece).min(total))
}

/// Checks the hash over the block checksums of `frame`, reading just these.
fn digest(source: &Source, frame: &Frame) -> Result<()> {
    let mut checksums = Vec::new();
    for index in 0..frame.count() {
        checksums.push(stored_checksum(source, frame, index)?);
    }
    let what = if frame.header.version < Version::V9 { "global hash" } else { "digest" };
    check(frame.footer.digest, hash::digest(frame.header.version, checksums), what, frame.footer.digest_at)
}

/// The checksum behind block `index`.
pub(super) fn stored_checksum(source: &Source, frame: &Frame, index: u64) -> Result<u32> {
    let block = FileExtent::find(frame, index)?;
    let at = block.at.plus(block.size.saturating_sub(4));
    let mut bytes = [0; 4];
    source.read(at, &mut bytes, "block checksum")?;
    Cursor::new(&bytes, at).u32_le("block checksum")
}
