//! The tables and the states of [`range_ans`](super::range_ans), which its kernels share.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of kernels")]

/// States of a block, and bytes of a row.
pub const LANES: usize = 32;
/// Bytes that must be readable before the words of a block, and after them; their values do not matter.
pub const PAD: usize = 64;
/// The state that an encoder starts from; a smaller state takes a word.
pub(super) const START: u32 = 1 << 15;
/// The sum of all weights.
pub(super) const SLOTS: usize = 1024;

/// For each slot its byte, its index among the slots of this byte (from bit 8), and their number (from bit 18).
#[derive(Debug)]
pub struct Slots(pub(super) [u32; SLOTS]);

impl Slots {
    /// The slots of bytes with these weights; `None` if the weights do not add up to 1024.
    pub fn new(weights: impl Iterator<Item = u16>) -> Option<Self> {
        let (mut slots, mut next) = ([0; SLOTS], 0_usize);
        for (byte, weight) in (0..=255_u32).zip(weights) {
            let end = next + usize::from(weight);
            let own = slots.get_mut(next..end)?;
            for (inner, slot) in (0_u32..).zip(own) {
                *slot = byte | inner << 8 | u32::from(weight) << 18;
            }
            next = end;
        }
        (next == SLOTS).then_some(Self(slots))
    }
}

/// A block to decode.
#[derive(Debug)]
pub struct Block<'a> {
    /// The states at the end of encoding.
    pub states: [u32; LANES],
    /// The words, little-endian, between two times [`PAD`] bytes.
    pub words: &'a [u8],
    /// Gets the decoded bytes.
    pub out: &'a mut [u8],
}

/// A block being decoded.
pub(super) struct Lanes<'a> {
    pub(super) states: [u32; LANES],
    pub(super) words: &'a [u8],
    /// The offset of the end of the words left, in `words`.
    pub(super) left: usize,
    /// The rows left; all are whole.
    pub(super) rows: &'a mut [u8],
}

impl<'a> Lanes<'a> {
    /// Decodes the partial row at the end of a block, if there is one.
    pub(super) fn new(slots: &Slots, block: &'a mut Block) -> Self {
        let whole = block.out.len() - block.out.len() % LANES;
        let (rows, tail) = block.out.split_at_mut(whole);
        let left = block.words.len().saturating_sub(PAD);
        let mut lanes = Self { states: block.states, words: block.words, left, rows };
        for (byte, state) in tail.iter_mut().zip(&mut lanes.states).rev() {
            (*byte, *state) = step(slots, *state);
            if *state < START {
                lanes.left = lanes.left.saturating_sub(2);
                let word = lanes.words.get(lanes.left..).and_then(<[u8]>::first_chunk);
                *state = *state << 16 | word.map_or(0, |word| u32::from(u16::from_le_bytes(*word)));
            }
        }
        lanes
    }

    /// Whether the block was intact, after its last row.
    pub(super) fn is_complete(&self) -> bool {
        self.left == PAD && self.states == [START; LANES]
    }
}

/// The byte of a state, and the next state before it takes a word.
#[inline(always)]
pub(super) fn step(slots: &Slots, state: u32) -> (u8, u32) {
    let slot = slots.0[state as usize % SLOTS];
    (slot as u8, (slot >> 18).wrapping_mul(state >> 10).wrapping_add(slot >> 8 & 1023))
}
