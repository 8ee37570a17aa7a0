//! The forward outputs of a quantized array: its codes and its outliers, and their meaning, for every rank.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of inner loops")]

use std::marker::PhantomData;
use std::sync::Arc;

use super::number::{Int, Real, differences};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::fzm::inverse::{self, Coding, Inverse};
use crate::format::fzm::stage::block_windows::scaled;
use crate::format::fzm::stage::code_blocks::CodeBlocks;
use crate::format::fzm::stage::outliers::{Outliers, Sorted};
use crate::format::fzm::stage::types::Unsigned;
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// Codes of type `C` of an array of `T`.
pub(super) struct Coded<T, C> {
    pub(super) codes: CodeBlocks,
    outliers: Outliers<T>,
    coding: Coding,
    pub(super) twice_bound: T,
    _code: PhantomData<fn() -> C>,
}

impl<T: Real, C: Unsigned> Coded<T, C> {
    pub(super) fn new(codes: Arc<dyn ByteStream>, outliers: Outliers<T>, coding: Coding, twice_bound: T) -> Self {
        let codes = CodeBlocks::new(codes, C::SIZE);
        Self { codes, outliers, coding, twice_bound, _code: PhantomData }
    }

    /// The number of codes; as many elements do not exceed 2^64 bytes.
    pub(super) fn count(&self) -> u64 {
        self.codes.stream().len() / to_u64(C::SIZE)
    }

    /// Bytes of elements from one unit of the codes.
    pub(super) fn unit(&self) -> u64 {
        scaled(self.codes.stream().unit(), C::SIZE, T::SIZE)
    }

    /// Whether elements of finite sums are finite or infinite, and never NaN.
    pub(super) fn is_plain(&self) -> bool {
        self.twice_bound.is_finite()
    }

    /// The outliers, sorted by position.
    pub(super) fn sorted(&self) -> Result<&Sorted<T>> {
        self.outliers.sorted()
    }

    /// Decodes `codes` to integers.
    #[inline(always)]
    pub(super) fn differences<I: Int>(&self, codes: &[u8], out: &mut [I]) {
        differences::<C, _>(codes, self.coding, out);
    }

    /// Adds the numbers of `codes` to `own`, as floats.
    pub(super) fn add(&self, codes: &[u8], own: &mut [T]) {
        const BATCH: usize = 32;
        for (own, codes) in own.chunks_mut(BATCH).zip(codes.chunks(BATCH * C::SIZE)) {
            let mut numbers = [0_i64; BATCH];
            self.differences(codes, &mut numbers);
            for ((own, &n), _) in own.iter_mut().zip(&numbers).zip(codes.chunks_exact(C::SIZE)) {
                *own = *own + T::of(n);
            }
        }
    }

    /// Writes the elements for `sums`.
    pub(super) fn put(&self, sums: &[T], out: &mut [u8]) {
        for (own, &sum) in out.chunks_exact_mut(T::SIZE).zip(sums) {
            (sum * self.twice_bound).canonical().put(own);
        }
    }

    /// See [`ByteStream::setup`].
    pub(super) fn setup(&self) -> Setup {
        self.outliers.setup()
    }

    /// See [`ByteStream::derivation`]: an array of `dims` in tiles of `tile` and bricks of `brick` elements.
    pub(super) fn derivation(self: &Arc<Self>, dims: [u64; 3], tile: [u64; 3], brick: Option<[u64; 3]>) -> Derivation {
        let own = Arc::clone(self);
        let inverse = inverse::LorenzoQuant {
            real: to_u64(T::SIZE),
            code: to_u64(C::SIZE),
            coding: self.coding,
            twice_bound: self.twice_bound.into(),
            dims,
            tile,
            brick,
            outliers: Arc::new(move |positions| own.sorted()?.bytes(positions)),
        };
        Derivation { inverse: Inverse::LorenzoQuant(inverse), input: Arc::clone(self.codes.stream()) }
    }
}
