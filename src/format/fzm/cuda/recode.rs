//! Zigzag, Negabinary and Bitpack: element by element.
//!
//! Reference: sections 5.6, 5.7 and 10.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::{Inverse, Job, Run, Span};
use crate::gpu::{Arg, Kernel, Memory};

/// How signed integers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The sign in the lowest bit.
    Zigzag,
    /// Base -2.
    Negabinary,
}

/// The inverse of Zigzag or Negabinary.
#[derive(Debug, Clone, Copy)]
pub struct Recode {
    /// Which of the two.
    pub code: Code,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub size: u64,
    /// Bytes of whole elements; zeros follow.
    pub whole: u64,
}

impl Inverse for Recode {
    fn block(&self) -> u64 {
        self.size
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        Ok(window.clone())
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let name = match (self.code, self.size) {
            (Code::Zigzag, 1) => "zigzag_1",
            (Code::Zigzag, 2) => "zigzag_2",
            (Code::Zigzag, 4) => "zigzag_4",
            (Code::Zigzag, _) => "zigzag_8",
            (Code::Negabinary, 1) => "negabinary_1",
            (Code::Negabinary, 2) => "negabinary_2",
            (Code::Negabinary, 4) => "negabinary_4",
            (Code::Negabinary, _) => "negabinary_8",
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

/// The inverse of Bitpack.
#[derive(Debug, Clone, Copy)]
pub struct Bitpack {
    /// Bytes of an element: 1, 2 or 4.
    pub size: u64,
    /// Stored bits per element: a power of two, at most the bits of an element.
    pub nbits: u32,
    /// Decoded bytes of the smallest group of elements that is stored in whole bytes.
    pub block: u64,
    /// Stored bytes of a block.
    pub packed: u64,
}

impl Inverse for Bitpack {
    fn block(&self) -> u64 {
        self.block
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        let stored = |at: u64| at * self.packed;
        Ok(stored(window.start / self.block)..stored(window.end.div_ceil(self.block)))
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let out = job.span(window)?;
        let words = out.len().div_ceil(4);
        let args = [input.arg(), out.arg(), Arg::U64(words), Arg::U32(self.size as u32), Arg::U32(self.nbits)];
        job.launch(Kernel { file: "bitpack", name: "bitpack" }, words.div_ceil(256), 256, &args)?;
        Ok(out)
    }
}
