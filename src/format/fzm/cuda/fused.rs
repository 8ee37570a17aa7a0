//! Fused chains: several stages undone by one kernel.
//!
//! The chains supported: RZE then Bitshuffle, whose chunks and blocks are the same bytes; and with 16-bit elements also
//! the `LorenzoQuant` of rank 1 behind them, whose tiles divide the chunks. Intermediate results then stay on the chip.
#![forbid(unsafe_code)]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use super::rze::{CHUNK, THREADS};
use super::{Bitshuffle, Inverse, Job, LorenzoQuant, Node, Run, Rze, Span};
use crate::format::fzm::stream::Stream;
use crate::gpu::{Arg, Kernel, Memory};

/// Whether to use fused kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusing {
    /// Wherever one exists.
    Yes,
    /// Never: stage by stage.
    No,
}

/// Fuses `node` with the stages below it, if a kernel undoes them together.
pub(super) fn fuse(node: Node, fusing: Fusing) -> Node {
    if fusing == Fusing::No {
        return node;
    }
    if let Some((rze, width, input)) = chunks(&node) {
        return Node { inverse: Box::new(Words { rze, width }), input };
    }
    let quant: Option<&LorenzoQuant> = (&*node.inverse as &dyn Any).downcast_ref();
    let quant = quant.filter(|quant| quant.is_line_of_words());
    let below = node.input.clone().on_device();
    match (quant, below.as_ref().and_then(chunks)) {
        (Some(quant), Some((rze, 2, input))) => {
            let line = Line { quant: quant.clone(), rze, codes: node.input.len() };
            Node { inverse: Box::new(line), input }
        }
        _ => node,
    }
}

/// The RZE below a Bitshuffle whose blocks are its chunks, the element width, and the RZE's input.
fn chunks(node: &Node) -> Option<(Rze, u64, Arc<dyn Stream>)> {
    let shuffle: &Bitshuffle = (&*node.inverse as &dyn Any).downcast_ref()?;
    // 8-byte elements need more registers than available.
    let below = node.input.clone().on_device().filter(|_| shuffle.block == CHUNK && shuffle.width < 8)?;
    let rze: &Rze = (&*below.inverse as &dyn Any).downcast_ref()?;
    Some((rze.clone(), shuffle.width, below.input))
}

/// RZE and Bitshuffle.
struct Words {
    rze: Rze,
    width: u64,
}

impl Inverse for Words {
    fn block(&self) -> u64 {
        CHUNK
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        self.rze.needs(window)
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let name = match self.width {
            1 => "rze_bitshuffle_1",
            2 => "rze_bitshuffle_2",
            _ => "rze_bitshuffle_4",
        };
        self.rze.bytes(job, input, window, Kernel { file: "fused", name })
    }
}

/// RZE, Bitshuffle and `LorenzoQuant` of rank 1.
struct Line {
    quant: LorenzoQuant,
    rze: Rze,
    /// Total bytes of the codes; the last chunk may be partial.
    codes: u64,
}

impl Line {
    /// The range of the codes for a window; to the end of the codes for the last window.
    fn codes(&self, window: &Range<u64>) -> Range<u64> {
        let codes = |at: u64| at / self.quant.real * self.quant.code;
        let end = codes(window.end);
        codes(window.start)..if end.is_multiple_of(CHUNK) { end } else { self.codes }
    }
}

impl Inverse for Line {
    fn block(&self) -> u64 {
        CHUNK / self.quant.code * self.quant.real
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        self.rze.needs(&self.codes(window))
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let codes = self.codes(&window);
        let starts = self.rze.upload(job, input, &codes)?;
        let outliers = self.quant.side(job, &window)?;
        let out = job.span(window)?;
        let name = match self.quant.real {
            4 => "rze_bitshuffle_2_lorenzo_quant_1_f32",
            _ => "rze_bitshuffle_2_lorenzo_quant_1_f64",
        };
        let len = codes.end - codes.start;
        let mut args = vec![input.arg(), Arg::U64(input.len()), Arg::Memory(&starts, 0), out.arg(), Arg::U64(len)];
        args.extend(self.quant.scale());
        args.extend(outliers.args());
        job.launch(Kernel { file: "fused", name }, len.div_ceil(CHUNK), THREADS, &args)?;
        Ok(out)
    }
}
