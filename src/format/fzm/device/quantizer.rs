//! Quantizer: element by element, then the outliers.
//!
//! Reference: sections 5.2, 8 and 10. The host keeps the outliers sorted by position and without duplicates, and
//! uploads those of the window.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::bytes::to_u64;
use crate::format::fzm::inverse::{Quantizer, Rule};
use crate::gpu::{Arg, Kernel, Memory};

impl DeviceOp for Quantizer {
    fn block(&self) -> u64 {
        self.real
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        Ok(window.start / self.real * self.code..window.end / self.real * self.code)
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let (first, end) = (window.start / self.real, window.end / self.real);
        let (out, n) = (job.span(window)?, Arg::U64(end - first));
        let name = match (self.real, self.code) {
            (4, 2) => "quantizer_f32_u16",
            (4, _) => "quantizer_f32_u32",
            (_, 2) => "quantizer_f64_u16",
            (_, _) => "quantizer_f64_u32",
        };
        let (kind, radius, twice_bound, step) = match self.rule {
            Rule::Signed(twice) => (0, 0, twice, 0.0),
            Rule::Zigzag(twice) => (1, 0, twice, 0.0),
            Rule::InPlace(twice, radius) => (2, radius, twice, 0.0),
            Rule::Relative(step) => (3, 0, 0.0, step),
        };
        let twice = if self.real == 4 { Arg::F32(twice_bound as f32) } else { Arg::F64(twice_bound) };
        let args = [input.arg(), out.arg(), n, Arg::U32(kind), Arg::U32(radius), twice, Arg::F32(step)];
        job.launch(Kernel { file: "quantizer", name }, (end - first).div_ceil(4 * 256), 256, &args)?;
        let Some(outliers) = &self.outliers else { return Ok(out) };
        let (positions, values) = outliers(first..end)?;
        if positions.is_empty() {
            return Ok(out);
        }
        let place = |position: &u32| u64::from(*position).checked_sub(first).and_then(|at| u32::try_from(at).ok());
        let places = positions.iter().map(place).collect::<Option<Vec<u32>>>().ok_or(Fallback::Invalid)?;
        let at = job.upload(&places.iter().flat_map(|at| at.to_le_bytes()).collect::<Vec<u8>>())?;
        let value = job.upload(&values)?;
        let count = to_u64(places.len());
        let name = if self.real == 4 { "quantizer_outliers_4" } else { "quantizer_outliers_8" };
        let args = [out.arg(), n, Arg::Memory(&at, 0), Arg::Memory(&value, 0), Arg::U32(count as u32)];
        job.launch(Kernel { file: "quantizer", name }, count.div_ceil(256), 256, &args)?;
        Ok(out)
    }
}
