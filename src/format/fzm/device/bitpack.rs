//! Bitpack: one thread per 32 bits of output.
//!
//! Reference: sections 5.6 and 10.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::Bitpack;
use crate::gpu::{Arg, Kernel, Memory};

impl DeviceOp for Bitpack {
    fn block(&self) -> u64 {
        self.block
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        let stored = |at: u64| at * self.packed;
        Ok(stored(window.start / self.block)..stored(window.end.div_ceil(self.block)))
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let out = job.span(window)?;
        let words = out.len().div_ceil(4);
        let args = [input.arg(), out.arg(), Arg::U64(words), Arg::U32(self.size as u32), Arg::U32(self.nbits)];
        job.launch(Kernel { file: "bitpack", name: "bitpack" }, words.div_ceil(256), 256, &args)?;
        Ok(out)
    }
}
