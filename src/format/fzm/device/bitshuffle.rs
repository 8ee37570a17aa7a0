//! Bitshuffle: one thread per 32 elements.
//!
//! Reference: sections 5.8 and 10. Blocks are independent; bytes after the last full block are copied unchanged.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::Bitshuffle;
use crate::gpu::{Arg, Kernel, Memory};

impl DeviceOp for Bitshuffle {
    fn block(&self) -> u64 {
        if self.full == 0 { 1 } else { self.block }
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let shuffled = self.full.min(window.end).saturating_sub(window.start);
        if shuffled == 0 {
            return Ok(input.clone());
        }
        let kernel = match self.width {
            1 => "bitshuffle_1",
            2 => "bitshuffle_2",
            4 => "bitshuffle_4",
            _ => "bitshuffle_8",
        };
        let out = job.span(window.clone())?;
        let block = u32::try_from(self.block).map_err(|_| Fallback::Invalid)?;
        let threads = shuffled / (32 * self.width);
        let args = [input.arg(), out.arg(), Arg::U64(shuffled), Arg::U32(block)];
        job.launch(Kernel { file: "bitshuffle", name: kernel }, threads.div_ceil(128), 128, &args)?;
        let tail = window.start + shuffled..window.end;
        job.copy(&input.clone().part(tail.clone())?, &out.clone().part(tail)?)?;
        Ok(out)
    }
}
