//! Checkpoints in long modern frames: block boundaries at which decoding can resume.
//!
//! libzstd decodes a frame only from its start. But the state at a boundary fits in a dictionary: a Huffman tree, three
//! FSE tables, three repeat offsets, and content, which is the last window before the boundary. The blocks after the
//! boundary are then decoded as a frame of their own, with the same window and this dictionary. The format gives a
//! dictionary exactly the reach of the window, so the bytes are the same.
//!
//! Reference: sections 3 and 6 (RFC 8878, 3.1.1.3, 3.1.1.5 and 6).
//!
//! `entropy`: the state, followed through the headers of blocks. `distribution`: tables as a dictionary has them.
//! `recorder`: makes checkpoints as a decoder passes. `packed`: a checkpoint as bytes.
//!
//! A table of a single code cannot be expressed; no encoder is known to repeat one in a later block. If a block does,
//! libzstd refuses it, and the frame is decoded from its start. `super::pipeline` resumes with the state as it is.
#![forbid(unsafe_code)]

mod distribution;
mod entropy;
mod packed;
mod recorder;
#[cfg(test)]
pub(super) mod tests;

use crate::bytes::{FileOffset, to_u64};

use super::frame::Frame;
use super::header::Generation;
pub(super) use entropy::{Entropy, RepeatOffsets, TableSource};
pub(super) use packed::{Packer, unpack};
pub(super) use recorder::{History, Recorder, Sink};

/// Magic number of a dictionary, and an id, which no frame names.
const DICTIONARY: [u8; 8] = [0x37, 0xA4, 0x30, 0xEC, 1, 0, 0, 0];

/// Content between two checkpoints: this many windows, or a part of a short frame, and so many bytes at least and at most.
/// To copy and compress a window takes about as long as to decode three.
const WINDOWS: u64 = 8;
const PART: u64 = 4;
const LEAST: u64 = 16 << 20;
const MOST: u64 = 32 << 20;

/// The place of a checkpoint, and the state of a decoder there besides its window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecoderState {
    /// Where the next block starts in the file.
    pub(super) at: FileOffset,
    /// Bytes of content before it.
    pub(super) pos: u64,
    entropy: Entropy,
    offsets: [u32; 3],
}

/// All that a decoder needs to resume.
#[derive(Debug)]
pub(super) struct Resume {
    pub(super) state: DecoderState,
    /// The state and the window as a dictionary.
    pub(super) dictionary: Vec<u8>,
    /// The header of a frame for the blocks that follow.
    pub(super) header: [u8; 6],
}

/// Bytes of content between the checkpoints of `frame`; `None` if it can have none, or is too short to need any.
pub(super) fn spacing(frame: &Frame) -> Option<u64> {
    let header = &frame.header;
    if header.generation != Generation::Modern || header.dictionary != 0 || frame.is_listed {
        return None;
    }
    descriptor(header.window)?;
    let content = frame.content.unwrap_or(frame.bound).min(frame.bound);
    let spacing = header.window.saturating_mul(WINDOWS).max((content / PART).clamp(LEAST, MOST));
    (content >= spacing.saturating_mul(2)).then_some(spacing)
}

/// The descriptor of a window of `window` bytes, if there is one.
fn descriptor(window: u64) -> Option<u8> {
    let exponent = window.checked_ilog2().filter(|exponent| (10..=31).contains(exponent))?;
    let base = 1_u64 << exponent;
    let mantissa = (window - base).checked_div(base >> 3)?;
    (base + mantissa * (base >> 3) == window).then_some(((exponent - 10) << 3) as u8 | mantissa as u8)
}

impl DecoderState {
    /// The state as the start of a dictionary.
    fn dictionary(&self) -> Vec<u8> {
        let mut bytes = DICTIONARY.to_vec();
        self.entropy.append_tables(&mut bytes);
        for offset in self.offsets {
            bytes.extend(offset.to_le_bytes());
        }
        bytes
    }

    /// The tree and the tables there.
    pub(super) fn entropy(&self) -> &Entropy {
        &self.entropy
    }

    /// The offsets used last.
    pub(super) fn repeat_offsets(&self) -> RepeatOffsets {
        RepeatOffsets::new(self.offsets)
    }

    /// Whether it can be a state in `frame`, with `history` bytes of content before it.
    fn is_plausible(&self, frame: &Frame, history: u64) -> bool {
        let inside = self.at > frame.blocks_at && self.at < frame.at.plus(frame.stored);
        let content = frame.content.unwrap_or(frame.bound).min(frame.bound);
        let reaches = self.offsets.iter().all(|&offset| offset > 0 && u64::from(offset) <= history);
        inside && self.pos <= content && history == frame.header.window && history <= self.pos && reaches
    }
}

impl Resume {
    /// Resumes at `state`, with `history` appended to its tables.
    fn new(state: DecoderState, dictionary: Vec<u8>, frame: &Frame) -> Option<Self> {
        let [a, b, c, d] = 0xFD2F_B528_u32.to_le_bytes();
        let header = [a, b, c, d, 0, descriptor(frame.header.window)?];
        Some(Self { state, dictionary, header })
    }

    /// Resumes at `state`, which has the window `history` before it; `None` if that cannot be in `frame`.
    pub(super) fn at(state: &DecoderState, history: &[u8], frame: &Frame) -> Option<Self> {
        if !state.is_plausible(frame, to_u64(history.len())) {
            return None;
        }
        Self::new(state.clone(), [&state.dictionary(), history].concat(), frame)
    }

    /// The window before it.
    pub(super) fn history(&self, window: u64) -> Option<&[u8]> {
        last(&self.dictionary, window)
    }

    /// Follows the blocks after it; records nothing.
    pub(super) fn follower(&self) -> Recorder {
        Recorder::new(self.state.entropy.clone().resumed(), self.state.repeat_offsets(), self.state.pos)
    }
}

/// The last `window` bytes of `content`.
fn last(content: &[u8], window: u64) -> Option<&[u8]> {
    let len = to_u64(content.len());
    content.get(usize::try_from(len.checked_sub(window)?).ok()?..)
}
