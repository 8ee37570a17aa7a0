//! Bitshuffle: one thread per 32 elements.
//!
//! Reference: sections 5.8 and 10. Blocks are independent; bytes after the last full block are copied unchanged.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::{Inverse, Job, Run, Span, Stop};
use crate::gpu::{Arg, Kernel, Memory};

/// The inverse of Bitshuffle.
#[derive(Debug, Clone, Copy)]
pub struct Bitshuffle {
    /// Bytes of a block: a positive multiple of 1024 elements, below 2^32.
    pub block: u64,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: u64,
    /// Total bytes of all full blocks.
    pub full: u64,
}

impl Inverse for Bitshuffle {
    fn block(&self) -> u64 {
        if self.full == 0 { 1 } else { self.block }
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
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
        let block = u32::try_from(self.block).map_err(|_| Stop::Broken)?;
        let threads = shuffled / (32 * self.width);
        let args = [input.arg(), out.arg(), Arg::U64(shuffled), Arg::U32(block)];
        job.launch(Kernel { file: "bitshuffle", name: kernel }, threads.div_ceil(128), 128, &args)?;
        let tail = window.start + shuffled..window.end;
        job.copy(&input.clone().part(tail.clone())?, &out.clone().part(tail)?)?;
        Ok(out)
    }
}
