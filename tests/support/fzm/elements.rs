//! Elements as numbers: integers of every width in a `u64`, floats of both widths in an `f64`.
//!
//! One float operation on two `f32` done in `f64` and rounded once gives what `f32` arithmetic gives
//! (53 bits are more than twice 24, plus two), so [`Real::round`] after each step is exact.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::dtype::Dtype;

/// Elements that one task takes.
const TASK: usize = 1 << 16;

/// The integer in the first `size` bytes.
pub(crate) fn load(bytes: &[u8], size: usize) -> u64 {
    let mut word = [0; 8];
    match size {
        1 => word[0] = bytes[0],
        2 => word[..2].copy_from_slice(&bytes[..2]),
        4 => word[..4].copy_from_slice(&bytes[..4]),
        _ => word.copy_from_slice(&bytes[..8]),
    }
    u64::from_le_bytes(word)
}

/// Writes the low `size` bytes of `value`.
pub(crate) fn store(bytes: &mut [u8], size: usize, value: u64) {
    let word = value.to_le_bytes();
    match size {
        1 => bytes[0] = word[0],
        2 => bytes[..2].copy_from_slice(&word[..2]),
        4 => bytes[..4].copy_from_slice(&word[..4]),
        _ => bytes[..8].copy_from_slice(&word),
    }
}

/// The low `size` bytes of `value` as a signed number.
pub(crate) fn signed(value: u64, size: usize) -> i64 {
    let unused = 64 - 8 * size as u32;
    ((value << unused) as i64) >> unused
}

/// Zigzag code of a signed number; cut to the width when it is stored.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The number that has zigzag code `code`.
pub(crate) fn unzigzag(code: u64) -> i64 {
    ((code >> 1) ^ (code & 1).wrapping_neg()) as i64
}

/// Negabinary code of a number of `size` bytes.
pub(crate) fn negabinary(value: u64, size: usize) -> u64 {
    let mask = 0xAAAA_AAAA_AAAA_AAAA >> (64 - 8 * size);
    value.wrapping_add(mask) ^ mask
}

/// The number that has negabinary code `code`.
pub(crate) fn unnegabinary(code: u64, size: usize) -> u64 {
    let mask = 0xAAAA_AAAA_AAAA_AAAA >> (64 - 8 * size);
    (code ^ mask).wrapping_sub(mask)
}

/// Every whole element of `size` bytes changed by `change`; a ragged tail becomes zeros.
pub(crate) fn map(bytes: &[u8], size: usize, change: impl Fn(u64) -> u64 + Sync) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    out.par_chunks_mut(TASK * size).zip(bytes.par_chunks(TASK * size)).for_each(|(out, bytes)| {
        for (out, element) in out.chunks_exact_mut(size).zip(bytes.chunks_exact(size)) {
            store(out, size, change(load(element, size)));
        }
    });
    out
}

/// `bytes` without a ragged tail.
pub(crate) fn whole(bytes: &[u8], size: usize) -> &[u8] {
    &bytes[..bytes.len() / size * size]
}

/// `bytes` with everything from `keep` on replaced by zeros.
pub(crate) fn zeros_from(bytes: &[u8], keep: usize) -> Cow<'_, [u8]> {
    if keep >= bytes.len() {
        return Cow::Borrowed(bytes);
    }
    let mut out = bytes.to_vec();
    out[keep..].fill(0);
    Cow::Owned(out)
}

/// One of the two float types: arithmetic that is exact in it, and its place in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Real {
    single: bool,
}

impl Real {
    pub(crate) fn of(dtype: Dtype) -> Self {
        Self { single: dtype == Dtype::F32 }
    }

    pub(crate) fn size(self) -> usize {
        if self.single { 4 } else { 8 }
    }

    /// The nearest value of this type.
    pub(crate) fn round(self, x: f64) -> f64 {
        if self.single { f64::from(x as f32) } else { x }
    }

    pub(crate) fn add(self, a: f64, b: f64) -> f64 {
        self.round(a + b)
    }

    pub(crate) fn sub(self, a: f64, b: f64) -> f64 {
        self.round(a - b)
    }

    pub(crate) fn mul(self, a: f64, b: f64) -> f64 {
        self.round(a * b)
    }

    /// `a` times `b`, plus `c`, rounded once.
    pub(crate) fn fma(self, a: f64, b: f64, c: f64) -> f64 {
        if self.single { f64::from((a as f32).mul_add(b as f32, c as f32)) } else { a.mul_add(b, c) }
    }

    pub(crate) fn div(self, a: f64, b: f64) -> f64 {
        self.round(a / b)
    }

    pub(crate) fn load(self, bytes: &[u8]) -> f64 {
        if self.single { f64::from(f32::from_bits(load(bytes, 4) as u32)) } else { f64::from_bits(load(bytes, 8)) }
    }

    pub(crate) fn store(self, bytes: &mut [u8], x: f64) {
        if self.single {
            store(bytes, 4, u64::from((x as f32).to_bits()));
        } else {
            store(bytes, 8, x.to_bits());
        }
    }

    /// Inclusive scan in Kogge-Stone order.
    pub(crate) fn kogge_stone(self, lanes: &mut [f64]) {
        let mut d = 1;
        while d < lanes.len() {
            for l in (d..lanes.len()).rev() {
                lanes[l] = self.add(lanes[l], lanes[l - d]);
            }
            d *= 2;
        }
    }

    /// What `bound` times becomes absolute by: the range of the values (`range`) or their largest magnitude.
    /// Values that are not finite do not count; 0 where there is none.
    pub(crate) fn base(self, bytes: &[u8], range: bool) -> f64 {
        let size = self.size();
        let wider = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        let (low, high) = whole(bytes, size)
            .par_chunks(TASK * size)
            .map(|part| {
                part.chunks_exact(size)
                    .map(|x| self.load(x))
                    .filter(|x| x.is_finite())
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |a, x| wider(a, (x, x)))
            })
            .reduce(|| (f64::INFINITY, f64::NEG_INFINITY), wider);
        match (low <= high, range) {
            (false, _) => 0.0,
            (true, true) => self.sub(high, low),
            (true, false) => low.abs().max(high.abs()),
        }
    }
}

/// Fields of a configuration record, in order.
#[derive(Debug, Default)]
pub(crate) struct Record(pub(crate) Vec<u8>);

impl Record {
    pub(crate) fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }

    pub(crate) fn u16(mut self, v: u16) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn f32(mut self, v: f64) -> Self {
        self.0.extend((v as f32).to_le_bytes());
        self
    }

    pub(crate) fn f64(mut self, v: f64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn zeros(mut self, n: usize) -> Self {
        self.0.extend(std::iter::repeat_n(0, n));
        self
    }
}
