//! `AdaptiveBitpack`: one thread block per group of blocks.
//!
//! Reference: `AdaptiveBitpack`. The host knows where groups start, and the metadata of a window is uploaded besides
//! its blocks.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::AdaptiveBitpack;
use crate::gpu::{Arg, Kernel, Memory};

impl AdaptiveBitpack {
    /// Where the groups of a window start, and where the last one ends.
    fn starts(&self, window: &Range<u64>) -> OpResult<Vec<u64>> {
        let bytes = DeviceOp::block(self);
        Ok((self.groups)(window.start / bytes..window.end.div_ceil(bytes))?)
    }
}

impl DeviceOp for AdaptiveBitpack {
    fn block(&self) -> u64 {
        Self::GROUP * self.block * self.size
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        let starts = self.starts(window)?;
        let at = |start: Option<&u64>| start.copied().ok_or(Fallback::Invalid);
        Ok(at(starts.first())?..at(starts.last())?)
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let mut starts = Vec::new();
        for start in self.starts(&window)? {
            starts.extend(start.checked_sub(input.range().start).ok_or(Fallback::Invalid)?.to_le_bytes());
        }
        let starts = job.upload(&starts)?;
        let own = |at: u64| at.div_ceil(self.block * self.size) * self.metadata;
        let metadata = job.upload(&(self.read)(own(window.start)..own(window.end))?)?;
        let out = job.span(window)?;
        let name = if self.size == 2 { "adaptive_bitpack_2" } else { "adaptive_bitpack_4" };
        let args = [
            input.arg(),
            Arg::U64(input.len()),
            Arg::Memory(&starts, 0),
            Arg::Memory(&metadata, 0),
            out.arg(),
            Arg::U64(out.len() / self.size),
            Arg::U32(self.block as u32),
            Arg::U32((self.metadata == 2).into()),
        ];
        let groups = out.len().div_ceil(DeviceOp::block(self));
        job.launch(Kernel { file: "planes", name }, groups, 256, &args)?;
        Ok(out)
    }
}
