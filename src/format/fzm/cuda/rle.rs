//! RLE: every thread produces 16 bytes and looks up the runs they come from.
//!
//! Reference: sections 5.5 and 10. The whole stream is kept on the device, with the end of each run, summed up there.
//! The cost of a window is then proportional to its size.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;

use super::{Inverse, Job, Run, Span, Stop, Sums};
use crate::error::Result;
use crate::gpu::{Arg, Kernel, Memory};

/// The inverse of RLE.
pub struct Rle {
    size: u64,
    count: u64,
    layout: Box<Layout>,
}

/// Returns the number of runs, and the offset of their lengths, which are all within the stream.
type Layout = dyn Fn() -> Result<(u64, u64)> + Send + Sync;

impl Rle {
    /// For `count` elements of `size` bytes: 1, 2 or 4. `layout` returns the number of runs, and the offset of their
    /// lengths, which must all be within the stream.
    pub fn new(size: u64, count: u64, layout: impl Fn() -> Result<(u64, u64)> + Send + Sync + 'static) -> Self {
        Self { size, count, layout: Box::new(layout) }
    }
}

impl Inverse for Rle {
    fn block(&self) -> u64 {
        self.size
    }

    fn needs(&self, _window: &Range<u64>) -> Run<Range<u64>> {
        Err(Stop::Broken)
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn index(&self, job: &mut Job, input: &Span) -> Run<Vec<Memory>> {
        let (runs, lengths) = (self.layout)()?;
        let ends = job.alloc(8 * runs)?;
        let to = Arg::Memory(&ends, 0);
        let kernel = Kernel { file: "rle", name: "rle_lengths" };
        job.launch(kernel, runs.div_ceil(256), 256, &[input.arg_at(lengths), to, Arg::U64(runs)])?;
        Sums { size: 8, float: false, negabinary: false, span: runs.max(1) }.run(job, to, to, runs)?;
        Ok(vec![ends])
    }

    fn run(&self, job: &mut Job, input: &Span, kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let ((runs, _), [ends]) = ((self.layout)()?, kept) else { return Err(Stop::Broken) };
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

impl fmt::Debug for Rle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rle({} elements)", self.count)
    }
}
