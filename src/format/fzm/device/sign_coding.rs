//! Zigzag and Negabinary: element by element.
//!
//! Reference: sections 5.7 and 10.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::{SignCode, SignCoding};
use crate::gpu::{Arg, Kernel, Memory};

impl DeviceOp for SignCoding {
    fn block(&self) -> u64 {
        self.size
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let name = match (self.code, self.size) {
            (SignCode::Zigzag, 1) => "zigzag_1",
            (SignCode::Zigzag, 2) => "zigzag_2",
            (SignCode::Zigzag, 4) => "zigzag_4",
            (SignCode::Zigzag, _) => "zigzag_8",
            (SignCode::Negabinary, 1) => "negabinary_1",
            (SignCode::Negabinary, 2) => "negabinary_2",
            (SignCode::Negabinary, 4) => "negabinary_4",
            (SignCode::Negabinary, _) => "negabinary_8",
        };
        let whole = self.whole.min(window.end).saturating_sub(window.start);
        let out = job.span(window)?;
        let quads = whole.div_ceil(16);
        let args = [input.arg(), out.arg(), Arg::U64(quads)];
        job.launch(Kernel { file: "recode", name }, quads.div_ceil(256), 256, &args)?;
        job.clear(&out, whole)?;
        Ok(out)
    }
}
