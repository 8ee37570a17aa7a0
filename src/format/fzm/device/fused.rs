//! Fused chains: several stages undone by one kernel.
//!
//! The chains supported: RZE then Bitshuffle, with chunks and blocks of the same bytes; and, if its elements are codes,
//! also the `LorenzoQuant` of rank 1 behind them, with tiles that divide the chunks. Intermediate results then stay on
//! the chip.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use super::op::{self, DeviceOp};
use super::rze::{CHUNK, THREADS};
use crate::format::fzm::inverse::{Inverse, LorenzoQuant, Rze};
use crate::format::fzm::stream::{ByteStream, Derivation};
use crate::gpu::{Arg, Kernel, Memory};

/// Whether to use fused kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusing {
    /// Wherever one exists.
    Yes,
    /// Never: stage by stage.
    No,
}

/// An operation, and the stream that it reads.
pub(super) type OpAndInput = (Box<dyn DeviceOp>, Arc<dyn ByteStream>);

/// The operation for `derivation` and the stages below it, if a kernel undoes them together; and its input.
pub(super) fn fuse(derivation: &Derivation) -> Option<OpAndInput> {
    if let Some((rze, width, input)) = chunks(derivation) {
        return Some((Box::new(FusedBitshuffle { rze, width }), input));
    }
    let Inverse::LorenzoQuant(quant) = &derivation.inverse else { return None };
    let below = op::derivation(&derivation.input).filter(|_| quant.is_line())?;
    let (rze, _, input) = chunks(&below).filter(|(_, width, _)| *width == quant.code)?;
    let line = FusedRank1 { quant: quant.clone(), rze, codes: derivation.input.len() };
    Some((Box::new(line), input))
}

/// The RZE below a Bitshuffle with blocks that match its chunks, the element width, and the RZE's input.
fn chunks(derivation: &Derivation) -> Option<(Rze, u64, Arc<dyn ByteStream>)> {
    let Inverse::Bitshuffle(shuffle) = &derivation.inverse else { return None };
    // 8-byte elements need more registers than available.
    let below = op::derivation(&derivation.input).filter(|_| shuffle.block == CHUNK && shuffle.width < 8)?;
    let Inverse::Rze(rze) = below.inverse else { return None };
    Some((rze, shuffle.width, below.input))
}

/// RZE and Bitshuffle.
struct FusedBitshuffle {
    rze: Rze,
    width: u64,
}

impl DeviceOp for FusedBitshuffle {
    fn block(&self) -> u64 {
        CHUNK
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        self.rze.needs(window)
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let name = match self.width {
            1 => "rze_bitshuffle_1",
            2 => "rze_bitshuffle_2",
            _ => "rze_bitshuffle_4",
        };
        self.rze.bytes(job, input, window, Kernel { file: "fused", name })
    }
}

/// RZE, Bitshuffle and `LorenzoQuant` of rank 1.
struct FusedRank1 {
    quant: LorenzoQuant,
    rze: Rze,
    /// Total bytes of the codes; the last chunk may be partial.
    codes: u64,
}

impl FusedRank1 {
    /// The range of the codes for a window; to the end of the codes for the last window.
    fn codes(&self, window: &Range<u64>) -> Range<u64> {
        let codes = |at: u64| at / self.quant.real * self.quant.code;
        let end = codes(window.end);
        codes(window.start)..if end.is_multiple_of(CHUNK) { end } else { self.codes }
    }
}

impl DeviceOp for FusedRank1 {
    fn block(&self) -> u64 {
        CHUNK / self.quant.code * self.quant.real
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        self.rze.needs(&self.codes(window))
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let codes = self.codes(&window);
        let starts = self.rze.upload(job, input, &codes)?;
        let outliers = self.quant.side(job, &window)?;
        let out = job.span(window)?;
        let name = match (self.quant.real, self.quant.code) {
            (4, 1) => "rze_bitshuffle_lorenzo_quant_1_f32_u8",
            (4, _) => "rze_bitshuffle_lorenzo_quant_1_f32_u16",
            (_, 2) => "rze_bitshuffle_lorenzo_quant_1_f64_u16",
            _ => "rze_bitshuffle_lorenzo_quant_1_f64_u32",
        };
        let len = codes.end - codes.start;
        let mut args = vec![input.arg(), Arg::U64(input.len()), Arg::Memory(&starts, 0), out.arg(), Arg::U64(len)];
        args.extend(self.quant.scale());
        args.extend(outliers.args());
        job.launch(Kernel { file: "fused", name }, len.div_ceil(CHUNK), THREADS, &args)?;
        Ok(out)
    }
}
