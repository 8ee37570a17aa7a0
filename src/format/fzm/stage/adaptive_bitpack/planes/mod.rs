//! Blocks in bit planes: their sizes, and the elements of blocks that follow each other.
//!
//! A plane has one bit for each element, the first in the lowest bit of the first byte; the first plane of a block has
//! the signs, the others the magnitudes from the lowest bit up.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the parts of a kernel become part of what runs it")]

mod batch;

use crate::codec::simd_dispatch::{SimdLoop, SimdOps};

/// The sizes that all blocks share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planes {
    /// Elements of a block, 1 to 1024.
    pub(super) block: usize,
    /// Bytes of an element, 2 or 4.
    pub(super) size: usize,
    /// Whether the first element of a block may be stored apart.
    pub(super) selection: bool,
    /// Bytes of a plane.
    word: usize,
}

/// How a block is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockForm {
    /// Planes of magnitudes.
    pub(super) rate: usize,
    /// Bytes of the magnitude of the first element, if it is stored apart; otherwise 0.
    pub(super) head: usize,
    /// All bytes.
    pub(super) cost: usize,
}

impl Planes {
    /// Blocks of `block` elements (1 to 1024) of `size` bytes (2 or 4).
    pub(super) fn new(block: u32, size: usize, selection: bool) -> Self {
        let block = block as usize;
        Self { block, size, selection, word: block.div_ceil(8) }
    }

    /// Bytes of a block's metadata.
    pub(super) fn metadata(&self) -> usize {
        if self.selection { 2 } else { 1 }
    }

    /// Bytes of the blocks with this `metadata`.
    ///
    /// # Errors
    /// The first block that cannot be, and why.
    pub(super) fn cost(&self, metadata: &[u8]) -> Result<u64, (usize, String)> {
        let mut sum = 0;
        for (i, own) in metadata.chunks_exact(self.metadata()).enumerate() {
            let form = self.form(own);
            if form.rate > 8 * self.size {
                return Err((i, format!("{} bit planes for {} bits", form.rate, 8 * self.size)));
            }
            if form.head > self.size {
                return Err((i, format!("{} bytes for an element of {}", form.head, self.size)));
            }
            sum += form.cost as u64;
        }
        Ok(sum)
    }

    /// The form of a block with this `metadata`.
    #[inline(always)]
    pub(super) fn form(&self, metadata: &[u8]) -> BlockForm {
        let rate = usize::from(metadata[0]);
        let selector = metadata.get(1).copied().unwrap_or(0);
        if selector & 1 == 0 {
            return BlockForm { rate, head: 0, cost: if rate == 0 { 0 } else { self.word * (rate + 1) } };
        }
        let head = usize::from(selector >> 1 & 3) + 1;
        BlockForm { rate, head, cost: head + self.word * (rate + 1) }
    }
}

/// Fills `out` with the elements of blocks; the last block may be shorter. Returns whether the blocks fit.
pub(super) struct Unpack<'a> {
    pub(super) planes: Planes,
    pub(super) metadata: &'a [u8],
    pub(super) payload: &'a [u8],
    pub(super) out: &'a mut [u8],
}

impl SimdLoop for Unpack<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        let Self { planes, metadata, mut payload, out } = self;
        // Without lines, everything is done block by block.
        let blocks = batch::blocks(&planes).unwrap_or(64);
        let batches =
            metadata.chunks(blocks * planes.metadata()).zip(out.chunks_mut(blocks * planes.block * planes.size));
        for (metadata, out) in batches {
            let is_line = batch::blocks(&planes).is_some() && out.len() == blocks * planes.block * planes.size;
            let used = match if is_line { batch::unpack(vectors, &planes, metadata, payload, out) } else { None } {
                Some(used) => Some(used),
                None => one_by_one(&planes, metadata, payload, out),
            };
            let Some(rest) = used.and_then(|used| payload.get(used..)) else { return false };
            payload = rest;
        }
        true
    }
}

/// Fills `out` with the elements of blocks, and returns their bytes.
#[inline(always)]
fn one_by_one(planes: &Planes, metadata: &[u8], payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut rest = payload;
    let metadata = metadata.chunks_exact(planes.metadata());
    for (own, out) in metadata.zip(out.chunks_mut(planes.block * planes.size)) {
        let form = planes.form(own);
        let (bytes, after) = rest.split_at_checked(form.cost)?;
        rest = after;
        match (form.cost, planes.size) {
            (0, _) => out.fill(0),
            (_, 2) => elements::<2>(form, planes.word, bytes, out)?,
            _ => elements::<4>(form, planes.word, bytes, out)?,
        }
    }
    Some(payload.len() - rest.len())
}

/// Elements that are decoded together: the bits of a word.
const GROUP: usize = 32;

/// The bit of each element in a word.
const BITS: [u32; GROUP] = {
    let (mut bits, mut i) = ([0; GROUP], 0);
    while i < GROUP {
        bits[i] = 1 << i;
        i += 1;
    }
    bits
};

/// Fills `out` with the elements of one block, stored in all of `bytes`.
#[inline(always)]
fn elements<const SIZE: usize>(form: BlockForm, word: usize, bytes: &[u8], out: &mut [u8]) -> Option<()> {
    let (head, planes) = bytes.split_at_checked(form.head)?;
    let (signs, planes) = planes.split_at_checked(word)?;
    let first = little(head);
    for (at, out) in (0..word).step_by(4).zip(out.chunks_mut(GROUP * SIZE)) {
        let mut magnitudes = [0; GROUP];
        for (plane, value) in planes.chunks_exact(word).zip(0..u32::BITS) {
            add(&mut magnitudes, word_at(plane, at), 1 << value);
        }
        if at == 0 && form.head > 0 {
            magnitudes[0] = first;
        }
        negate(&mut magnitudes, word_at(signs, at));
        match SIZE {
            2 => store(out, magnitudes.map(|own| (own as u16).to_le_bytes())),
            _ => store(out, magnitudes.map(u32::to_le_bytes)),
        }
    }
    Some(())
}

/// Adds `value` where a bit is set.
#[inline(always)]
fn add(magnitudes: &mut [u32; GROUP], bits: u32, value: u32) {
    for (own, bit) in magnitudes.iter_mut().zip(BITS) {
        *own |= ones(bits & bit != 0) & value;
    }
}

/// Negates where a bit is set.
#[inline(always)]
fn negate(magnitudes: &mut [u32; GROUP], bits: u32) {
    for (own, bit) in magnitudes.iter_mut().zip(BITS) {
        let sign = ones(bits & bit != 0);
        *own = (*own ^ sign).wrapping_sub(sign);
    }
}

/// All bits, or none: the compiler makes vectors of this, not of a choice.
#[inline(always)]
fn ones(are_set: bool) -> u32 {
    u32::from(!are_set).wrapping_sub(1)
}

/// Stores the first elements, as many as there is space for.
#[inline(always)]
fn store<const SIZE: usize>(out: &mut [u8], own: [[u8; SIZE]; GROUP]) {
    let (out, _) = out.as_chunks_mut::<SIZE>();
    if let Some(out) = out.first_chunk_mut::<GROUP>() {
        *out = own;
        return;
    }
    for (out, own) in out.iter_mut().zip(own) {
        *out = own;
    }
}

/// The bits of up to 32 elements from byte `at` of a plane.
#[inline(always)]
fn word_at(plane: &[u8], at: usize) -> u32 {
    let Some(bytes) = plane.get(at..) else { return 0 };
    match bytes.first_chunk() {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => little(bytes),
    }
}

/// The number in up to four bytes.
#[inline(always)]
pub(super) fn little(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}
