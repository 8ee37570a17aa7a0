//! Kernels of a processor that has none.

use super::merge_side::Side;
use super::simd_ops::SimdLoop;

pub(crate) const COMPILED: usize = 0;

#[derive(Clone, Copy)]
pub(crate) enum Kernels {}

impl Kernels {
    pub(crate) const LONGEST: usize = 1;

    pub(crate) fn get() -> Option<Self> {
        None
    }

    pub(crate) fn run<K: SimdLoop>(self, _: K) -> K::Output {
        match self {}
    }

    pub(crate) fn unshuffle(self, _: usize, _: usize, _: &[u8], _: &mut [u8]) -> usize {
        match self {}
    }

    pub(crate) fn bit_unshuffle(self, _: usize, _: usize, _: &[u8], _: &mut [u8]) -> usize {
        match self {}
    }

    pub(crate) fn running_sum(self, _: &mut [u8]) -> (usize, u8) {
        match self {}
    }

    pub(crate) fn merge<const W: usize>(self, _: &[u8], _: Side, _: Side, _: &mut [u8]) {
        match self {}
    }

    pub(crate) fn repeat_last<const W: usize>(self, _: &[u8], _: &[u8], _: &mut [u8]) {
        match self {}
    }

    pub(crate) fn unpack(self, _: &[u8], _: u32, _: &[u8; 128], _: &mut [u8]) {
        match self {}
    }
}
