//! Writes the bytes of a window that are outside the array: zeros.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::to_usize;
use crate::error::Result;

use super::{AXES, AxisIndex, GridReader};

impl GridReader {
    /// Clears the bytes of `range` of C order that are outside the array; `dst` stands for the range.
    pub(super) fn pad(&self, range: Range<u64>, dst: &mut [u8]) -> Result<()> {
        if self.axes.iter().all(|axis| axis.inside() == axis.len) {
            return Ok(());
        }
        let at = range.start;
        self.each_box(range, &mut |lo, hi| {
            // The part inside along the axes before `d`, and outside along axis `d`.
            let (mut lo, mut hi) = (*lo, *hi);
            for d in 0..self.axes.len() {
                let edge = self.axes[d].inside().clamp(lo[d], hi[d]);
                if edge < hi[d] {
                    let first = lo[d];
                    lo[d] = edge;
                    self.clear(&lo, &hi, at, dst)?;
                    lo[d] = first;
                }
                hi[d] = edge;
                if lo[d] == edge {
                    break;
                }
            }
            Ok(true)
        })
    }

    /// Clears the box from `lo` to `hi`, in as long runs as possible; `dst` stands for the bytes from `at` on.
    fn clear(&self, lo: &AxisIndex, hi: &AxisIndex, at: u64, dst: &mut [u8]) -> Result<()> {
        let n = self.axes.len();
        // The axes inside `run` are whole, so that its steps follow each other.
        let run = (1..n).rev().find(|&d| lo[d] > 0 || hi[d] < self.axes[d].len).unwrap_or(0);
        let len = to_usize((hi[run] - lo[run]) * self.strides[run], "range")?;
        let mut step: AxisIndex = [0; AXES];
        step[..=run].copy_from_slice(&lo[..=run]);
        loop {
            let out: u64 = (0..=run).map(|d| step[d] * self.strides[d]).sum();
            let out = to_usize(out - at, "range")?;
            if let Some(zeros) = dst.get_mut(out..).and_then(|rest| rest.get_mut(..len)) {
                zeros.fill(0);
            }
            let Some(d) = (0..run).rev().find(|&d| step[d] + 1 < hi[d]) else { return Ok(()) };
            step[d] += 1;
            step[d + 1..run].copy_from_slice(&lo[d + 1..run]);
        }
    }
}
