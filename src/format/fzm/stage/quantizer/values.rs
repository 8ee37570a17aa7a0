//! The decoded array: values of codes, and the outliers among them.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::marker::PhantomData;
use std::sync::Arc;

use super::rules::{Formula, values};
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{Portable, SimdLoop, SimdOps, run_widest};
use crate::error::Result;
use crate::format::fzm::inverse::{self, Inverse, Rule};
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise, scaled};
use crate::format::fzm::stage::code_blocks::{CodeBlocks, Codes, TILE, missing_codes};
use crate::format::fzm::stage::outliers::Outliers;
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::{Float, Unsigned};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// The decoded array.
pub(super) struct QuantizedValues<T, C> {
    codes: CodeBlocks,
    outliers: Option<Outliers<T>>,
    formula: Formula<T>,
    windows: BlockWindows,
    code: PhantomData<fn() -> C>,
}

impl<T: Float, C: Unsigned> QuantizedValues<T, C> {
    /// The values of `n` codes, which are not more than 2^64 bytes.
    pub(super) fn new(codes: Arc<dyn ByteStream>, n: u64, outliers: Option<Outliers<T>>, formula: Formula<T>) -> Self {
        let windows = BlockWindows::new(n * to_u64(T::SIZE), to_u64(T::SIZE), scaled(codes.unit(), C::SIZE, T::SIZE));
        Self { codes: CodeBlocks::new(codes, C::SIZE), outliers, formula, windows, code: PhantomData }
    }
}

impl<T: Float, C: Unsigned> Blockwise for QuantizedValues<T, C> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let sorted = self.outliers.as_ref().map(Outliers::sorted).transpose()?;
        let first = start / to_u64(T::SIZE);
        let mut bytes = ScratchBuffer::new(TILE * C::SIZE)?;
        self.codes.each(first, to_u64(out.len() / T::SIZE), |done, count, codes| {
            let (bytes, out) = (&mut *bytes, &mut out[done * T::SIZE..][..count * T::SIZE]);
            let first = first + to_u64(done);
            let decode = FillValues::<T, C> { formula: self.formula, first, codes, bytes, out, code: PhantomData };
            let is_complete = match self.formula {
                // Each value is a call of a function that is compiled for any processor.
                Formula::Rule(Rule::Relative(_)) => decode.run(Portable),
                _ => run_widest(decode),
            };
            if is_complete { Ok(()) } else { Err(missing_codes()) }
        })?;
        let end = first + to_u64(out.len() / T::SIZE);
        let Some(sorted) = sorted else { return Ok(()) };
        sorted.between(first, end, |at, value| {
            let place = (at - first) as usize * T::SIZE;
            value.put(&mut out[place..place + T::SIZE]);
        })
    }

    fn setup(&self) -> Setup {
        self.outliers.as_ref().map_or(Setup::None, Outliers::setup)
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let Formula::Rule(rule) = self.formula else { return None };
        let (input, own) = (Arc::clone(self.codes.stream()), Arc::clone(&self));
        let outliers = move |positions| match &own.outliers {
            Some(outliers) => outliers.sorted()?.bytes(positions),
            None => Ok((Vec::new(), Vec::new())),
        };
        let rule = match rule {
            Rule::Signed(twice) => Rule::Signed(twice.into()),
            Rule::Zigzag(twice) => Rule::Zigzag(twice.into()),
            Rule::InPlace(twice, radius) => Rule::InPlace(twice.into(), radius),
            Rule::Relative(step) => Rule::Relative(step),
        };
        let inverse = inverse::Quantizer {
            real: to_u64(T::SIZE),
            code: to_u64(C::SIZE),
            rule,
            outliers: self.outliers.is_some().then(|| Arc::new(outliers) as _),
        };
        Some(Derivation { inverse: Inverse::Quantizer(inverse), input })
    }
}

/// Fills `out` with the values of `codes`. Returns whether there are as many.
struct FillValues<'a, T, C> {
    formula: Formula<T>,
    /// The element of the first code.
    first: u64,
    codes: Codes<'a>,
    /// Space for the codes of a tile.
    bytes: &'a mut [u8],
    out: &'a mut [u8],
    code: PhantomData<C>,
}

impl<T: Float, C: Unsigned> SimdLoop for FillValues<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        for (tile, out) in self.out.chunks_mut(TILE * T::SIZE).enumerate() {
            vectors.prefetch(out);
            let count = out.len() / T::SIZE;
            let Some(codes) = self.codes.tile::<C>(vectors, tile, count, self.bytes) else { return false };
            values::<T, C>(self.formula, self.first + to_u64(tile * TILE), codes, out);
        }
        true
    }
}
