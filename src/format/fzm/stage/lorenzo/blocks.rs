//! Integer Lorenzo in blocks: each block is summed on its own, once or twice, and its mean is added.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse, RunningSums};
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise, scaled};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::{Unsigned, elements};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// How blocks are summed.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSums {
    /// Elements of a block: 1 to 1024.
    pub(super) span: usize,
    /// Whether the differences are of second order.
    pub(super) twice: bool,
    /// Whether each block has a mean.
    pub(super) centering: bool,
}

/// The array.
pub(super) struct Blocks<U> {
    input: Arc<dyn ByteStream>,
    means: Option<Arc<dyn ByteStream>>,
    sums: BlockSums,
    windows: BlockWindows,
    _element: PhantomData<fn() -> U>,
}

impl<U: Summed> Blocks<U> {
    /// The array with the differences `input`; `means` has one for each block if `sums` says so.
    pub(super) fn new(input: Arc<dyn ByteStream>, means: Option<Arc<dyn ByteStream>>, sums: BlockSums) -> Result<Self> {
        let (len, size) = (input.len(), to_u64(U::SIZE));
        if let Some(means) = &means {
            let need = (len / size).div_ceil(to_u64(sums.span)) * size;
            if need > means.len() {
                return Err(Error::new(Kind::Truncated { need, have: means.len() }, "means"));
            }
        }
        let windows = BlockWindows::new(len, to_u64(sums.span) * size, scaled(input.unit(), U::SIZE, U::SIZE));
        Ok(Self { input, means, sums, windows, _element: PhantomData })
    }
}

impl<U: Summed> Blockwise for Blocks<U> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        self.input.read(start, out)?;
        let whole = out.len() - out.len() % U::SIZE;
        let (elements, ragged) = out.split_at_mut(whole);
        ragged.fill(0);
        let block = self.sums.span * U::SIZE;
        let mut means =
            ScratchBuffer::new(self.means.as_ref().map_or(0, |_| elements.len().div_ceil(block) * U::SIZE))?;
        if let Some(stream) = &self.means {
            stream.read(start / to_u64(block) * to_u64(U::SIZE), &mut means)?;
        }
        run_widest(SumBlocks::<U> { sums: self.sums, means: &means, out: elements, _element: PhantomData });
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        if self.sums.twice || self.means.is_some() {
            return None;
        }
        let (len, size) = (self.windows.len(), to_u64(U::SIZE));
        let sums = RunningSums { size, float: false, negabinary: false, span: to_u64(self.sums.span) };
        let inverse = Inverse::Difference(inverse::Difference { sums, whole: len - len % size });
        Some(Derivation { inverse, input: Arc::clone(&self.input) })
    }
}

/// Sums the blocks of `out`; the last one may be shorter.
struct SumBlocks<'a, U> {
    sums: BlockSums,
    means: &'a [u8],
    out: &'a mut [u8],
    _element: PhantomData<U>,
}

impl<U: Summed> SimdLoop for SumBlocks<'_, U> {
    type Output = ();

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) {
        let Self { sums: BlockSums { span, twice, .. }, means, out, .. } = self;
        U::sum(vectors, out, span);
        if twice {
            U::sum(vectors, out, span);
        }
        for (block, mean) in out.chunks_mut(span * U::SIZE).zip(elements::<U>(means)) {
            for own in block.chunks_exact_mut(U::SIZE) {
                U::get(own).plus(mean).put(own);
            }
        }
    }
}

/// An element of blocks that are summed.
pub(super) trait Summed: Unsigned {
    /// Replaces the elements in `bytes`, whole ones, by their running sums, which restart every `span` elements.
    fn sum(vectors: impl SimdOps, bytes: &mut [u8], span: usize);
}

impl Summed for u8 {
    #[inline(always)]
    fn sum(_: impl SimdOps, bytes: &mut [u8], span: usize) {
        one_by_one::<Self>(bytes, span);
    }
}

impl Summed for u16 {
    #[inline(always)]
    fn sum(_: impl SimdOps, bytes: &mut [u8], span: usize) {
        one_by_one::<Self>(bytes, span);
    }
}

impl Summed for u32 {
    #[inline(always)]
    fn sum(vectors: impl SimdOps, bytes: &mut [u8], span: usize) {
        let mut numbers = [0_i32; TOGETHER];
        for bytes in bytes.chunks_mut(TOGETHER / span.max(1) * span * 4) {
            let numbers = &mut numbers[..bytes.len() / 4];
            for (own, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *own = i32::from_le_bytes(*bytes);
            }
            vectors.running_sums(numbers, span);
            for (own, bytes) in numbers.iter().zip(bytes.as_chunks_mut::<4>().0) {
                *bytes = own.to_le_bytes();
            }
        }
    }
}

impl Summed for u64 {
    #[inline(always)]
    fn sum(vectors: impl SimdOps, bytes: &mut [u8], span: usize) {
        let mut numbers = [0_i64; TOGETHER];
        for bytes in bytes.chunks_mut(TOGETHER / span.max(1) * span * 8) {
            let numbers = &mut numbers[..bytes.len() / 8];
            for (own, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *own = i64::from_le_bytes(*bytes);
            }
            vectors.running_sums64(numbers, span);
            for (own, bytes) in numbers.iter().zip(bytes.as_chunks_mut::<8>().0) {
                *bytes = own.to_le_bytes();
            }
        }
    }
}

/// Elements that are summed together: at least one block.
const TOGETHER: usize = 1024;

#[inline(always)]
fn one_by_one<U: Unsigned>(bytes: &mut [u8], span: usize) {
    for block in bytes.chunks_mut(span * U::SIZE) {
        let mut sum = U::default();
        for own in block.chunks_exact_mut(U::SIZE) {
            sum = sum.plus(U::get(own));
            sum.put(own);
        }
    }
}
