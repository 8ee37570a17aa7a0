//! The loop of `SZx` and `SZp`: codes of a fixed width to floats.
//!
//! Eight codes of `w` bits take `w` bytes, so the codes of every group of eight start at the same bits of a byte.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "parts of a loop that is compiled for several processors")]

use super::BlockCoding;
use crate::codec::simd_dispatch::{SimdLoop, SimdOps};
use crate::format::fzm::stage::types::{Element, Float, Unsigned};

/// Bytes after the codes that the loop may read; their content does not matter.
pub(super) const PAD: usize = 80;
/// Codes that are unpacked at a time.
const TILE: usize = 128;
/// Codes that take whole bytes.
const GROUP: usize = 8;

/// Consecutive blocks; the first and the last may be decoded in part.
pub(super) struct BlockWindow<'a, T> {
    pub(super) coding: BlockCoding,
    /// Elements of a block.
    pub(super) block: usize,
    pub(super) bound: f64,
    /// The table's entries of these blocks.
    pub(super) table: &'a [u8],
    /// Elements of the first block before the window; 0 for `SZp`.
    pub(super) skip: usize,
    /// The reference value of the first block if `payload` starts after it.
    pub(super) reference: T,
    /// The payloads of the blocks, from the first byte that is needed, and [`PAD`] more bytes.
    pub(super) payload: &'a [u8],
    pub(super) out: &'a mut [u8],
}

impl<T: Float> SimdLoop for BlockWindow<'_, T> {
    /// Whether the payload is complete.
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        let (mut rest, mut payload, mut skip) = (self.out, self.payload, self.skip);
        for entry in self.table.chunks_exact(self.coding.entry()) {
            let n = (self.block - skip).min(rest.len() / T::SIZE);
            let (out, tail) = rest.split_at_mut(n * T::SIZE);
            rest = tail;
            let (has_codes, width) = BlockCoding::block(entry);
            let mut reference = self.reference;
            if self.coding == BlockCoding::Referenced && (skip == 0 || !has_codes) {
                let Some((bytes, after)) = payload.split_at_checked(T::SIZE) else { return false };
                (reference, payload) = (T::get(bytes), after);
            }
            if has_codes {
                let first = skip * width as usize;
                let codes = FixedCodes { bytes: payload, first: first % 8, width };
                let done = match self.coding {
                    BlockCoding::Referenced => offsets(codes, self.bound, reference, out),
                    BlockCoding::Differences => sums::<T>(vectors, codes, self.bound, out),
                };
                let bytes = (self.block * width as usize).div_ceil(8) - first / 8;
                payload = payload.get(bytes..).unwrap_or_default();
                if !done {
                    return false;
                }
            } else {
                out.chunks_exact_mut(T::SIZE).for_each(|own| reference.put(own));
            }
            skip = 0;
        }
        rest.is_empty()
    }
}

/// Codes of `width` bits (at most 64) from bit `first` of the first byte.
#[derive(Clone, Copy)]
struct FixedCodes<'a> {
    bytes: &'a [u8],
    first: usize,
    width: u32,
}

impl FixedCodes<'_> {
    /// Unpacks codes from code `from`, a multiple of [`GROUP`]. Returns whether the bytes are there.
    #[inline(always)]
    fn unpack<C: Element>(&self, from: usize, out: &mut [C], low: impl Fn(u64) -> C) -> bool {
        if self.width == 0 {
            out.fill(low(0));
            return true;
        }
        let width = self.width as usize;
        let mask = u64::MAX >> (64 - self.width);
        let places: [(usize, u32); GROUP] = std::array::from_fn(|i| {
            let bit = self.first + i * width;
            (bit / 8 % 64, (bit % 8) as u32)
        });
        let mut at = from / GROUP * width;
        for group in out.chunks_mut(GROUP) {
            let Some(bytes) = self.bytes.get(at..).and_then(<[u8]>::first_chunk::<{ 64 + 16 }>) else { return false };
            let mut codes = [0; GROUP];
            if width + 7 <= 32 {
                // In two steps, so that the second one becomes vector operations.
                let mut short = [0_u32; GROUP];
                for (code, (byte, _)) in short.iter_mut().zip(places) {
                    *code = short_word(bytes, byte);
                }
                for (code, (_, shift)) in short.iter_mut().zip(places) {
                    *code = *code >> shift & mask as u32;
                }
                if let Some(own) = group.first_chunk_mut::<GROUP>() {
                    *own = short.map(|code| low(code.into()));
                    at += width;
                    continue;
                }
                codes = short.map(u64::from);
            } else if width + 7 <= 64 {
                for (code, (byte, shift)) in codes.iter_mut().zip(places) {
                    *code = word(bytes, byte) >> shift & mask;
                }
            } else {
                for (code, (byte, shift)) in codes.iter_mut().zip(places) {
                    let word = u128::from(word(bytes, byte)) | u128::from(word(bytes, byte + 8)) << 64;
                    *code = (word >> shift) as u64 & mask;
                }
            }
            for (own, code) in group.iter_mut().zip(codes) {
                *own = low(code);
            }
            at += width;
        }
        true
    }
}

/// Four bytes of a group from byte `at`, which is at most 72.
#[inline(always)]
fn short_word(bytes: &[u8; 80], at: usize) -> u32 {
    let mut own = [0; 4];
    own.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(own)
}

/// Eight bytes of a group from byte `at`, which is at most 72.
#[inline(always)]
fn word(bytes: &[u8; 80], at: usize) -> u64 {
    let mut own = [0; 8];
    own.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(own)
}

/// `SZx`: a code is the distance from the reference in units of twice the bound.
#[inline(always)]
fn offsets<T: Float>(codes: FixedCodes, bound: f64, reference: T, out: &mut [u8]) -> bool {
    let base: f64 = reference.into();
    // One rounding in f64, and one more to `T`.
    let value = |q: f64| T::nearest((2.0 * q).mul_add(bound, base));
    for (k, out) in out.chunks_mut(TILE * T::SIZE).enumerate() {
        let n = out.len() / T::SIZE;
        if codes.width <= 32 {
            let mut tile = [0_u32; TILE];
            if !codes.unpack(k * TILE, &mut tile[..n], |code| code as u32) {
                return false;
            }
            for (own, &code) in out.chunks_exact_mut(T::SIZE).zip(&tile) {
                value(f64::from(code.unzigzag() as i32)).put(own);
            }
        } else {
            let mut tile = [0_u64; TILE];
            if !codes.unpack(k * TILE, &mut tile[..n], |code| code) {
                return false;
            }
            for (own, &code) in out.chunks_exact_mut(T::SIZE).zip(&tile) {
                value(code.unzigzag() as i64 as f64).put(own);
            }
        }
    }
    if !base.is_finite() {
        // Only then can a result be a NaN.
        out.chunks_exact_mut(T::SIZE).for_each(|own| T::get(own).canonical().put(own));
    }
    true
}

/// `SZp`: a code is the difference from the element before it.
#[inline(always)]
fn sums<T: Float>(vectors: impl SimdOps, codes: FixedCodes, bound: f64, out: &mut [u8]) -> bool {
    // A difference is at most 2^(width - 1) in magnitude, and a block has at most 2^16 of them.
    let count = out.len() / T::SIZE;
    let is_short = codes.width <= 32 && i32::try_from(count << codes.width.saturating_sub(1)).is_ok();
    let (mut last32, mut last64) = (0_i32, 0_i64);
    for (k, out) in out.chunks_mut(TILE * T::SIZE).enumerate() {
        let n = out.len() / T::SIZE;
        if is_short {
            let mut tile = [0_i32; TILE];
            let tile = &mut tile[..n];
            if !codes.unpack(k * TILE, tile, |code| (code as u32).unzigzag() as i32) {
                return false;
            }
            if let Some(first) = tile.first_mut() {
                *first = first.wrapping_add(last32);
            }
            vectors.running_sums(tile, TILE);
            last32 = tile.last().copied().unwrap_or(last32);
            for (own, &mut q) in out.chunks_exact_mut(T::SIZE).zip(tile) {
                T::nearest(2.0 * f64::from(q) * bound).put(own);
            }
        } else {
            let mut tile = [0_i64; TILE];
            let tile = &mut tile[..n];
            if !codes.unpack(k * TILE, tile, |code| code.unzigzag() as i64) {
                return false;
            }
            if let Some(first) = tile.first_mut() {
                *first = first.wrapping_add(last64);
            }
            vectors.running_sums64(tile, TILE);
            last64 = tile.last().copied().unwrap_or(last64);
            for (own, &mut q) in out.chunks_exact_mut(T::SIZE).zip(tile) {
                T::nearest(2.0 * q as f64 * bound).put(own);
            }
        }
    }
    true
}
