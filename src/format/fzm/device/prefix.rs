//! The first bytes of a stream: nothing to compute.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::StreamPrefix;
use crate::gpu::Memory;

impl DeviceOp for StreamPrefix {
    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, _job: &mut DeviceJob, input: &Span, _kept: &[Memory], _window: Range<u64>) -> OpResult<Span> {
        Ok(input.clone())
    }
}
