//! The formulas from codes to values, tile by tile.
//!
//! Section 5.2. Only dither has a fused multiplication and addition; exp2 is evaluated in 64 bits and rounded once, as
//! section 8 specifies for implementations without the GPU's approximation.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of kernels")]

use crate::format::fzm::inverse::Rule;
use crate::format::fzm::stage::types::{Element, Float, Unsigned};

/// How codes become values of `T`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Formula<T> {
    /// As a device can.
    Rule(Rule<T>),
    /// Two's complement times this, in 64 bits, rounded once.
    Precise(f64),
    /// A number times `twice` in 32 bits.
    Single { twice: f32, zigzag: bool },
    /// A number times `twice`, plus noise times `amplitude`.
    Dithered { dither: Dither, twice: T, amplitude: T },
    /// The same in 32 bits.
    DitheredSingle { dither: Dither, twice: f32, amplitude: f32 },
    /// As [`Rule::Relative`] with `step`, with noise times `amplitude` in the exponent.
    DitheredPower { dither: Dither, step: f32, amplitude: f32 },
}

/// Where noise comes from, and how the codes under it represent numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dither {
    pub(super) seed: u64,
    pub(super) zigzag: bool,
}

impl Dither {
    /// The noise for element `i`, from -1 to below 1, a multiple of 2^-23.
    #[inline(always)]
    fn noise(self, i: u64) -> f32 {
        const SCALE: f32 = 1.0 / 16_777_216.0;
        let mut m = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.seed;
        m = (m ^ (m >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        m = (m ^ (m >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        m ^= m >> 31;
        // 24 bits, which a signed conversion keeps.
        (m >> 40) as i32 as f32 * SCALE * 2.0 - 1.0
    }

    #[inline(always)]
    fn number<C: Unsigned>(self, code: C) -> i64 {
        number(code, self.zigzag)
    }
}

#[inline(always)]
fn number<C: Unsigned>(code: C, zigzag: bool) -> i64 {
    if zigzag { code.unzigzag().signed() } else { code.signed() }
}

/// Fills `out` with the values of `codes`, starting with element `first`.
#[inline(always)]
pub(super) fn values<T: Float, C: Unsigned>(formula: Formula<T>, first: u64, codes: &[u8], out: &mut [u8]) {
    match formula {
        Formula::Rule(rule) => by_rule::<T, C>(rule, codes, out),
        Formula::Precise(twice) => each(codes, out, |code: C| T::nearest(code.signed() as f64 * twice).canonical()),
        Formula::Single { twice, zigzag: false } => {
            each(codes, out, |code: C| T::from_f32(code.signed() as f32 * twice).canonical());
        }
        Formula::Single { twice, zigzag: true } => {
            each(codes, out, |code: C| T::from_f32(number(code, true) as f32 * twice).canonical());
        }
        Formula::Dithered { dither, twice, amplitude } => numbered(first, codes, out, |i, code: C| {
            let value = T::of(dither.number(code)) * twice;
            T::from_f32(dither.noise(i)).times_plus(amplitude, value).canonical()
        }),
        Formula::DitheredSingle { dither, twice, amplitude } => numbered(first, codes, out, |i, code: C| {
            let value = dither.number(code) as f32 * twice;
            T::from_f32(dither.noise(i).times_plus(amplitude, value)).canonical()
        }),
        Formula::DitheredPower { dither, step, amplitude } => numbered(first, codes, out, |i, code: C| {
            let Some(power) = Power::of(code.plain() as u32) else { return T::default() };
            let exponent = dither.noise(i).times_plus(amplitude, power.bin * step);
            T::from_f32(power.value(exponent)).canonical()
        }),
    }
}

#[inline(always)]
fn by_rule<T: Float, C: Unsigned>(rule: Rule<T>, codes: &[u8], out: &mut [u8]) {
    match rule {
        Rule::Signed(twice) => each(codes, out, |code: C| (T::of(code.signed()) * twice).canonical()),
        Rule::Zigzag(twice) => each(codes, out, |code: C| (T::of(code.unzigzag().signed()) * twice).canonical()),
        Rule::InPlace(twice, radius) => each(codes, out, |code: C| {
            // This mode only exists for 32-bit codes and values.
            let bits = code.plain() as u32;
            if bits >> 1 >= radius {
                T::from_f32(f32::from_bits(bits))
            } else {
                (T::of(code.unzigzag().signed()) * twice).canonical()
            }
        }),
        Rule::Relative(step) => each(codes, out, |code: C| {
            let Some(power) = Power::of(code.plain() as u32) else { return T::default() };
            T::from_f32(power.value(power.bin * step)).canonical()
        }),
    }
}

#[inline(always)]
fn each<T: Element, C: Unsigned>(codes: &[u8], out: &mut [u8], value: impl Fn(C) -> T) {
    for (own, code) in out.chunks_exact_mut(T::SIZE).zip(codes.chunks_exact(C::SIZE)) {
        value(C::get(code)).put(own);
    }
}

#[inline(always)]
fn numbered<T: Element, C: Unsigned>(first: u64, codes: &[u8], out: &mut [u8], value: impl Fn(u64, C) -> T) {
    for ((own, code), i) in out.chunks_exact_mut(T::SIZE).zip(codes.chunks_exact(C::SIZE)).zip(first..) {
        value(i, C::get(code)).put(own);
    }
}

/// A code of mode REL that is not 0.
struct Power {
    bin: f32,
    is_negative: bool,
}

impl Power {
    #[inline(always)]
    fn of(code: u32) -> Option<Self> {
        let code = code.checked_sub(1)?;
        let bin = (code >> 2) as f32;
        Some(Self { bin: if code & 2 != 0 { -bin } else { bin }, is_negative: code & 1 != 0 })
    }

    #[inline(always)]
    fn value(&self, exponent: f32) -> f32 {
        let value = f64::from(exponent).exp2() as f32;
        if self.is_negative { -value } else { value }
    }
}
