//! `BitplaneRZE`: one thread block per chunk.
//!
//! Reference: `BitplaneRZE`. Chunks are stored in any order, roughly by number: the whole range from the first to the
//! last one of a window is uploaded, with their maps and places.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::bytes::to_u64;
use crate::format::fzm::inverse::{BitplaneRze, StoredPlanes};
use crate::gpu::{Arg, Kernel, Memory};

impl BitplaneRze {
    /// The chunks of a window of the decoded stream.
    fn stored(&self, window: &Range<u64>) -> OpResult<Vec<StoredPlanes>> {
        Ok((self.chunks)(window.start / Self::CHUNK..window.end.div_ceil(Self::CHUNK))?)
    }
}

impl DeviceOp for BitplaneRze {
    fn block(&self) -> u64 {
        Self::CHUNK
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        let chunks = self.stored(window)?;
        let own = || chunks.iter().map(|chunk| &chunk.words).filter(|words| !words.is_empty());
        let (start, end) = (own().map(|words| words.start).min(), own().map(|words| words.end).max());
        Ok(start.unwrap_or(0)..end.unwrap_or(0))
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let (mut maps, mut starts) = (Vec::new(), Vec::new());
        for StoredPlanes { map, words } in self.stored(&window)? {
            let at = if words.is_empty() { Some(0) } else { words.start.checked_sub(input.range().start) };
            let at = at.and_then(|at| u32::try_from(at / 4).ok()).ok_or(Fallback::Invalid)?;
            maps.extend(map);
            starts.extend(at.to_le_bytes());
        }
        let chunks = to_u64(starts.len() / 4);
        let (maps, starts) = (job.upload(&maps)?, job.upload(&starts)?);
        let out = job.span(window)?;
        let args = [
            input.arg(),
            Arg::U64(input.len() / 4),
            Arg::Memory(&maps, 0),
            Arg::Memory(&starts, 0),
            out.arg(),
            Arg::U64(out.len().div_ceil(4)),
        ];
        job.launch(Kernel { file: "planes", name: "bitplane_rze" }, chunks, 256, &args)?;
        Ok(out)
    }
}
