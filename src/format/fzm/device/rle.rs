//! RLE: every thread produces 16 bytes and looks up the runs they come from.
//!
//! Reference: sections 5.5 and 10. The whole stream is kept on the device, with the end of each run, summed up there.
//! The cost of a window is then proportional to its size.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::{Rle, RunningSums};
use crate::gpu::{Arg, Kernel, Memory};

impl DeviceOp for Rle {
    fn block(&self) -> u64 {
        self.size
    }

    fn needs(&self, _window: &Range<u64>) -> OpResult<Range<u64>> {
        Err(Fallback::Invalid)
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn index(&self, job: &mut DeviceJob, input: &Span) -> OpResult<Vec<Memory>> {
        let (runs, lengths) = (self.runs)()?;
        let ends = job.alloc(8 * runs)?;
        let to = Arg::Memory(&ends, 0);
        let kernel = Kernel { file: "rle", name: "rle_lengths" };
        job.launch(kernel, runs.div_ceil(256), 256, &[input.arg_at(lengths), to, Arg::U64(runs)])?;
        RunningSums { size: 8, float: false, negabinary: false, span: runs.max(1) }.run(job, to, to, runs)?;
        Ok(vec![ends])
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let ((runs, _), [ends]) = ((self.runs)()?, kept) else { return Err(Fallback::Invalid) };
        let out = job.span(window.clone())?;
        let n = out.len() / self.size;
        let name = match self.size {
            1 => "rle_1",
            2 => "rle_2",
            _ => "rle_4",
        };
        let [runs, count, first, elements] = [runs, self.count, window.start / self.size, n].map(Arg::U64);
        let args = [input.arg_at(4), Arg::Memory(ends, 0), runs, count, first, elements, out.arg()];
        job.launch(Kernel { file: "rle", name }, out.len().div_ceil(16 * 256), 256, &args)?;
        Ok(out)
    }
}
