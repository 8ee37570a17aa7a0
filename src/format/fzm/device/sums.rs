//! Difference and Lorenzo: running sums.
//!
//! Reference: sections 5.4, 5.3 and 10. Spans are independent. Long spans are split into parts; their totals are summed
//! first. Floats are summed in the order of the reference library, one warp per span.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::{Difference, Lorenzo, RunningSums};
use crate::gpu::{Arg, Kernel, Memory};

/// Elements that a thread block sums at a time.
const TILE: u64 = 2048;
/// Elements of a part of a long span.
const PART: u64 = 16 * TILE;
/// Number of spans from which one block per span keeps a device busy.
const MANY: u64 = 1024;

impl RunningSums {
    fn kernel(&self, of_1: &'static str, of_2: &'static str, of_4: &'static str, of_8: &'static str) -> Kernel {
        let name = match self.size {
            1 => of_1,
            2 => of_2,
            4 => of_4,
            _ => of_8,
        };
        Kernel { file: "sums", name }
    }

    /// Writes the running sums of the `n` elements at `from` to `to`, which may be the same memory.
    pub(super) fn run(&self, job: &mut DeviceJob, from: Arg, to: Arg, n: u64) -> OpResult {
        let spans = n.div_ceil(self.span);
        if self.float {
            let kernel = self.kernel("", "", "joined_4", "joined_8");
            return job.launch(kernel, spans, 32, &[from, to, Arg::U64(n), Arg::U64(self.span)]);
        }
        let negabinary = Arg::U32(self.negabinary.into());
        let kernel = self.kernel("sums_1", "sums_2", "sums_4", "sums_8");
        let sums = |job: &mut DeviceJob, blocks, span, part, restart, before| {
            let args = [from, to, Arg::U64(n), Arg::U64(span), Arg::U64(part), Arg::U32(restart), before, negabinary];
            job.launch(kernel, blocks, 256, &args)
        };
        if TILE.is_multiple_of(self.span) {
            return sums(job, n.div_ceil(TILE), TILE, TILE, self.span as u32, from);
        }
        if self.span <= PART || spans >= MANY {
            return sums(job, spans, self.span, self.span, 0, from);
        }
        let a_span = self.span.div_ceil(PART);
        let parts = n / self.span * a_span + (n % self.span).div_ceil(PART);
        let (totals, before) = (job.alloc(parts * self.size)?, job.alloc(parts * self.size)?);
        let kernel = self.kernel("totals_1", "totals_2", "totals_4", "totals_8");
        let totals = Arg::Memory(&totals, 0);
        job.launch(kernel, parts, 256, &[from, totals, Arg::U64(n), Arg::U64(self.span), Arg::U64(PART), negabinary])?;
        // Totals are plain integers, never negabinary.
        let of_parts = Self { span: a_span, negabinary: false, ..*self };
        of_parts.run(job, totals, Arg::Memory(&before, 0), parts)?;
        sums(job, parts, self.span, PART, 0, Arg::Memory(&before, 0))
    }
}

impl DeviceOp for Difference {
    fn block(&self) -> u64 {
        self.sums.span.saturating_mul(self.sums.size)
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let whole = self.whole.min(window.end).saturating_sub(window.start);
        let out = job.span(window)?;
        self.sums.run(job, input.arg(), out.arg(), whole / self.sums.size)?;
        job.clear(&out, whole)?;
        Ok(out)
    }
}

impl DeviceOp for Lorenzo {
    fn block(&self) -> u64 {
        // The last sum depends on every element.
        u64::MAX
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let [nz, ny, nx] = self.dims;
        let count = nz * ny * nx;
        let out = job.span(window)?;
        let along_x = RunningSums { size: self.size, float: false, negabinary: false, span: nx.max(1) };
        along_x.run(job, input.arg(), out.arg(), count)?;
        let kernel = along_x.kernel("lines_1", "lines_2", "lines_4", "lines_8");
        for (lag, len) in [(nx, ny), (nx * ny, nz)] {
            if len > 1 && count > 0 {
                let lines = count / len;
                let args = [out.arg(), Arg::U64(lag), Arg::U64(len), Arg::U64(lines)];
                job.launch(kernel, lines.div_ceil(256), 256, &args)?;
            }
        }
        job.clear(&out, count * self.size)?;
        Ok(out)
    }
}
