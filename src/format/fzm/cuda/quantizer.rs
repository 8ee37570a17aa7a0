//! Quantizer: element by element, then the outliers.
//!
//! Reference: sections 5.2, 8 and 10. The host keeps the outliers sorted by position and without duplicates; those of
//! the window are uploaded.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::lorenzo_quant::Outliers;
use super::{Inverse, Job, Run, Span, Stop};
use crate::bytes::to_u64;
use crate::gpu::{Arg, Kernel, Memory};

/// How codes become values, as kernel arguments.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Signed, zigzag, in place or relative.
    pub kind: u32,
    /// In-place outliers: if the upper bits of a code reach this, the code is the value itself.
    pub radius: u32,
    /// Factor for the numbers.
    pub twice_bound: f64,
    /// The logarithm of the ratio of neighboring values.
    pub step: f32,
}

/// The inverse of Quantizer.
#[derive(Clone)]
pub struct Quantizer {
    /// Bytes of an element: 4 or 8.
    pub real: u64,
    /// Bytes of a code: 2 or 4.
    pub code: u64,
    /// How codes become values.
    pub rule: Rule,
    /// The outliers, if there can be any.
    pub outliers: Option<Arc<Outliers>>,
}

impl fmt::Debug for Quantizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantizer({:?})", self.rule)
    }
}

impl Inverse for Quantizer {
    fn block(&self) -> u64 {
        self.real
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        Ok(window.start / self.real * self.code..window.end / self.real * self.code)
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let (first, end) = (window.start / self.real, window.end / self.real);
        let (out, n) = (job.span(window)?, Arg::U64(end - first));
        let name = match (self.real, self.code) {
            (4, 2) => "quantizer_f32_u16",
            (4, _) => "quantizer_f32_u32",
            (_, 2) => "quantizer_f64_u16",
            (_, _) => "quantizer_f64_u32",
        };
        let Rule { kind, radius, twice_bound, step } = self.rule;
        let twice = if self.real == 4 { Arg::F32(twice_bound as f32) } else { Arg::F64(twice_bound) };
        let args = [input.arg(), out.arg(), n, Arg::U32(kind), Arg::U32(radius), twice, Arg::F32(step)];
        job.launch(Kernel { file: "quantizer", name }, (end - first).div_ceil(4 * 256), 256, &args)?;
        let Some(outliers) = &self.outliers else { return Ok(out) };
        let (positions, values) = outliers(first..end)?;
        if positions.is_empty() {
            return Ok(out);
        }
        let place = |position: &u32| u64::from(*position).checked_sub(first).and_then(|at| u32::try_from(at).ok());
        let places = positions.iter().map(place).collect::<Option<Vec<u32>>>().ok_or(Stop::Broken)?;
        let at = job.upload(&places.iter().flat_map(|at| at.to_le_bytes()).collect::<Vec<u8>>())?;
        let value = job.upload(&values)?;
        let count = to_u64(places.len());
        let name = if self.real == 4 { "quantizer_outliers_4" } else { "quantizer_outliers_8" };
        let args = [out.arg(), n, Arg::Memory(&at, 0), Arg::Memory(&value, 0), Arg::U32(count as u32)];
        job.launch(Kernel { file: "quantizer", name }, count.div_ceil(256), 256, &args)?;
        Ok(out)
    }
}
