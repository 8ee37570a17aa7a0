//! The decoded bytes of a file, over all frames, as a blob.
//!
//! Reference: sections 2.2, 6.1, 7 and 11.4 of the ZXC reference.
//!
//! The first read of a frame decodes its last block too, to learn the sizes of blocks: see `block_sizes`.
//!
//! Checked: before the first byte of a frame, subject to `verify`, the hash over its block checksums; before the bytes
//! of a block, its own checksum.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Threads, Verified, Verify};
use crate::error::{Error, Kind, Result, UnknownParts};
use crate::format::{Blob, IdleDecoders, Layout, Options};
use crate::limits::{Charge, Limits};
use crate::once::Once;
use crate::source::Source;

use super::block;
use super::block_checksums;
use super::block_extent::BlockExtent;
use super::block_sizes::BlockSizes;
use super::decode_buffers::DecodeBuffers;
use super::dict::{FrameDictionary, Library};
use super::frame_state::{self, FrameState, piece_count, piece_len};
use super::index::ZxcFrame;

/// All frames of a file as one stream of bytes.
#[derive(Debug)]
pub(super) struct DecodedStream {
    source: Arc<Source>,
    pub(super) frames: Vec<FrameState>,
    layout: Layout,
    verify: Verify,
    threads: Threads,
    account: Account,
    idle: Arc<IdleDecoders>,
    /// For the gates of the frames, which outlive a borrow.
    me: Weak<DecodedStream>,
    _charge: Charge,
}

/// The gate before the content of `frame`, if its digest can be verified.
fn digest_gate(source: &Arc<Source>, frame: &Arc<ZxcFrame>, options: &Options) -> Option<ChecksumGate> {
    frame.header.is_verifiable().then(|| {
        let (source, frame) = (Arc::clone(source), Arc::clone(frame));
        let cost = block_checksums::digest_cost(&frame);
        let (at, stored) = (frame.footer.digest_at, frame.footer.digest.to_le_bytes());
        let of = Arc::clone(&source);
        let check = move || block_checksums::digest(&source, &frame);
        let check = options.index.once(&of, at, &stored, cost, check);
        ChecksumGate::new(&options.verify, cost, &options.threads, check)
    })
}

impl DecodedStream {
    /// The stream of all frames, as `indexed`.
    ///
    /// # Errors
    /// Fails if a dictionary file cannot be read, if there are more pieces than the limits allow, or if the account has
    /// no room.
    pub(super) fn new(source: &Arc<Source>, indexed: Vec<ZxcFrame>, options: &Options) -> Result<Arc<Self>> {
        let mut dictionaries = Library::new(&options.dicts);
        let count = to_u64(indexed.len());
        let several = if count == 1 { 0 } else { indexed.iter().fold(0_u64, |n, f| n.saturating_add(piece_count(f))) };
        Limits::check(several, options.limits.entries, "pieces")?;
        // The table of pieces is copied once when it is complete.
        let table = several.saturating_mul(2 * to_u64(size_of::<u64>()));
        let charge = options
            .account
            .charge(count.saturating_mul(to_u64(frame_state::MEMORY)).saturating_add(table), "piece table")?;
        let (mut start, mut first_piece, mut first_block) = (0_u64, 0_u64, 0_u64);
        let mut frames = Vec::with_capacity(indexed.len());
        for frame in indexed {
            let frame = Arc::new(frame);
            let gate = digest_gate(source, &frame, options);
            let dictionary = match frame.header.dict_id {
                None => FrameDictionary::None,
                Some(id) => {
                    let at = frame.at.plus(7);
                    dictionaries.find(id, at, frame.header.version).map_err(|e| e.at(at))?
                }
            };
            let (total, pieces, blocks) = (frame.footer.total, piece_count(&frame), frame.count());
            let state = FrameState {
                frame,
                dictionary,
                gate,
                sizes: Once::new(),
                sizing: OnceLock::new(),
                start,
                first_piece,
                first_block,
            };
            frames.push(state);
            let too_long = || Error::corrupt("the frames give more than 2^64 bytes", "total");
            start = start.checked_add(total).ok_or_else(too_long)?;
            first_piece = first_piece.saturating_add(pieces);
            first_block = first_block.saturating_add(blocks);
        }
        let layout = if let [only] = frames.as_slice() {
            Layout::Uniform { len: only.frame.footer.total, piece: piece_len(&only.frame) }
        } else {
            let mut ends = Vec::with_capacity(to_usize(several, "pieces")?);
            ends.extend(frames.iter().flat_map(FrameState::piece_ends));
            Layout::Ends(ends.into())
        };
        let Options { verify, threads, account, idle, .. } = options;
        let (source, verify, threads, account) = (Arc::clone(source), verify.clone(), threads.clone(), account.clone());
        let idle = idle.clone();
        let stream = |me: &Weak<Self>| Self {
            source,
            frames,
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
        self.frames.last().map_or(0, |p| p.first_block.saturating_add(p.frame.count()))
    }

    /// Finds block `index`: the number of its frame, the frame, and the number of the block in it.
    pub(super) fn block(&self, index: u64) -> Result<(usize, &FrameState, u64)> {
        // If several frames have the same first block, all but the last are empty.
        let number = self.frames.partition_point(|p| p.first_block <= index).saturating_sub(1);
        let state = self.frames.get(number).ok_or_else(|| Error::corrupt("there are fewer blocks", "block"))?;
        Ok((number, state, index.saturating_sub(state.first_block)))
    }

    /// The gate to pass before the payload of block `index` of `state` is served as stored; `None` if it has no
    /// checksum.
    pub(super) fn payload_gate(&self, state: &FrameState, index: u64) -> Option<ChecksumGate> {
        block_checksums::covers_payloads(&state.frame).then(|| {
            let (source, frame) = (Arc::clone(&self.source), Arc::clone(&state.frame));
            let number = state.block_number(index);
            let check = move || block_checksums::check_payload(&source, &frame, index);
            ChecksumGate::new(&self.verify.of_piece(), state.frame.header.block_size.into(), &self.threads, move || {
                check().map_err(|e| e.within(format_args!("block {number}")))
            })
        })
    }

    /// The decoded range of block `index` of `state`, relative to the frame.
    ///
    /// # Errors
    /// Fails if block sizes had to be determined and a block is corrupt.
    pub(super) fn block_range(&self, state: &FrameState, index: u64) -> Result<Range<u64>> {
        self.sizes(state)?.range(&state.frame, index)
    }

    /// Determines the block sizes of `state`; `verify` calls it if not all blocks are full.
    ///
    /// # Errors
    /// Fails if all blocks had to be decoded and one is corrupt, or their sum is not the total.
    pub(super) fn check_sizes(&self, state: &FrameState) -> Result<()> {
        self.sizes(state).map(|_| ())
    }

    fn sizes<'a>(&self, state: &'a FrameState) -> Result<&'a BlockSizes> {
        state.sizes.get(|| {
            let mut buffer = vec![0; state.frame.header.block_size as usize];
            let decode = |index| self.decode_block(state, index, &mut buffer).map(to_u64);
            BlockSizes::learn(&state.frame, &self.account, decode)
        })
    }

    /// The gate that determines the block sizes of frame `number`, unless they are known.
    pub(super) fn sizing(&self, number: usize) -> Option<ChecksumGate> {
        let state = self.frames.get(number)?;
        if state.sizes.ready().is_some() {
            return None;
        }
        let gate = state.sizing.get_or_init(|| {
            let me = self.me.clone();
            let find = move || {
                let gone = || Error::new(Kind::NotFound, "frame");
                let stream = me.upgrade().ok_or_else(gone)?;
                stream.check_sizes(stream.frames.get(number).ok_or_else(gone)?)
            };
            ChecksumGate::new(&Verify::First, 0, &self.threads, find)
        });
        ChecksumGate::shut(Some(gate), true)
    }

    /// The gate to pass before bytes of frame `number` are decoded, if one is still shut.
    pub(super) fn shut(&self, number: usize, is_end: bool) -> Option<ChecksumGate> {
        ChecksumGate::shut(self.frames.get(number)?.gate.as_ref(), is_end).or_else(|| self.sizing(number))
    }

    /// Decodes a block into the front of `dst`; returns its decoded size.
    fn decode_block(&self, state: &FrameState, index: u64, dst: &mut [u8]) -> Result<usize> {
        let len = self.idle.with(|buffers: &mut DecodeBuffers| {
            let len = block::decode(&self.source, &state.frame, index, &state.dictionary, buffers, dst);
            buffers.charge_idle(&self.account);
            len
        });
        len.map_err(|e| e.within(format_args!("block {}", state.block_number(index))))
    }

    /// Fills `dst` with the decoded bytes of `state` from `from` on.
    pub(super) fn decode_range(&self, state: &FrameState, from: u64, dst: &mut [u8]) -> Result<()> {
        let end = from.saturating_add(to_u64(dst.len()));
        ChecksumGate::wait_before(state.gate.as_ref(), end >= state.frame.footer.total)?;
        let sizes = self.sizes(state)?;
        let mut index = sizes.locate(&state.frame, from);
        let mut filled = 0;
        // The other blocks of a piece are decoded too: damage in them is found, and comes first.
        let mut unknown = UnknownParts::default();
        while filled < dst.len() {
            let block = sizes.range(&state.frame, index)?;
            if block.is_empty() {
                // It was decoded once, to learn its size.
                index += 1;
                continue;
            }
            let skip = (from + to_u64(filled)).saturating_sub(block.start) as usize;
            let len = (block.end - block.start) as usize;
            let rest = &mut dst[filled..];
            let given = if skip == 0 && rest.len() >= len {
                self.decode_block(state, index, rest)
            } else {
                let mut whole = vec![0; state.frame.header.block_size as usize];
                self.decode_block(state, index, &mut whole).inspect(|&given| {
                    let from = whole[..given].get(skip..).unwrap_or_default();
                    let n = from.len().min(rest.len());
                    rest[..n].copy_from_slice(&from[..n]);
                })
            };
            let given = given.or_else(|e| unknown.keep(Err(e)).map(|()| len))?;
            if given != len {
                let at = BlockExtent::find(&state.frame, index)?.at;
                let why = format!("decodes to {given} bytes, must be {len}");
                return Err(Error::corrupt(why, format!("block {}", state.block_number(index))).at(at));
            }
            filled += (len - skip).min(rest.len());
            index += 1;
        }
        unknown.result()
    }

    /// Number of the frame that contains a piece.
    fn frame_of(&self, piece_number: u64) -> Option<usize> {
        self.frames.partition_point(|p| p.first_piece <= piece_number).checked_sub(1)
    }
}

impl Blob for DecodedStream {
    fn layout(&self) -> Result<Layout> {
        Ok(self.layout.clone())
    }

    fn gate(&self, piece_number: u64) -> Option<ChecksumGate> {
        let number = self.frame_of(piece_number)?;
        let next = self.frames.get(number.saturating_add(1));
        let is_end = next.map_or(self.layout.count(), |next| next.first_piece) <= piece_number.saturating_add(1);
        self.shut(number, is_end)
    }

    fn verified(&self, range: Range<u64>) -> Verified {
        let first = self.frames.partition_point(|frame| frame.start <= range.start).saturating_sub(1);
        let frames = self.frames.iter().skip(first).take_while(|frame| frame.start < range.end);
        frames.map(FrameState::verified).max().unwrap_or(Verified::No)
    }

    fn decode(&self, piece_number: u64, dst: &mut [u8]) -> Result<()> {
        let state = self.frame_of(piece_number).and_then(|i| self.frames.get(i));
        let state = state.ok_or_else(|| Error::corrupt("there are fewer pieces", "piece"))?;
        let from = (piece_number - state.first_piece).saturating_mul(piece_len(&state.frame));
        self.decode_range(state, from, dst)
    }
}
