//! Quantizer (type 14): each value rounded independently, to a multiple of the bound or a power of it.
//!
//! Reference: sections 5.2, 6 (28-byte configurations) and 8 (exp2 and log2). No library reads this stage from a file;
//! the reference library's in-memory decompression defines the result.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::marker::PhantomData;
use std::sync::Arc;

use super::DataType::{F32, F64, U16, U32};
use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::code_blocks::{CodeBlocks, Codes, TILE, missing_codes};
use super::config::{Config, Field, Layout};
use super::outliers::{Names, Outliers};
use super::scratch::ScratchBuffer;
use super::types::{Element, Float, Unsigned};
use super::{Context, DataType, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{Portable, SimdLoop, SimdOps, run_widest};
use crate::error::{Error, Result};
use crate::format::fzm::inverse::{self, Inverse, Rule};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// The mode of bounds relative to each value.
const REL: u8 = 1;

/// The stage type.
pub(super) const TYPE: StageType =
    StageType { code: 14, name: "quantizer", layout: &LAYOUT, parse: |config| Ok(Box::new(Quantizer::parse(config)?)) };

const LAYOUT: Layout = Layout {
    sizes: &[28, 36],
    fields: &[
        Field::f32("abs_error_bound", 0),
        Field::f32("user_error_bound", 4),
        Field::f32("value_base", 8),
        Field::u32("quant_radius", 12),
        Field::u32("num_elements", 16),
        Field::u32("outlier_count", 20),
        Field::element_type("input_type", 24),
        Field::element_type("code_type", 25),
        Field::mode("eb_mode", 26),
        Field::flag("zigzag_codes", 27),
        Field::f32("outlier_threshold", 28),
        Field::flag("inplace_outliers", 32),
        Field::zero(33, 1),
        Field::hole(34, 2),
    ],
};

/// A stage.
struct Quantizer {
    config: Config,
    input: DataType,
    code: DataType,
}

impl Quantizer {
    fn parse(config: Config) -> Result<Self> {
        let input = config.element_type("input_type", &[F32, F64], DataType::Opaque)?;
        let code = config.element_type("code_type", &[U16, U32], DataType::Opaque)?;
        let stage = Self { config, input, code };
        if stage.in_place() && (input, code) != (F32, U32) {
            let pair = format!("in-place quantization from {} to {}", input.name(), code.name());
            return Err(stage.config.unknown("input_type", pair));
        }
        Ok(stage)
    }

    fn is_relative(&self) -> bool {
        self.config.u8("eb_mode") == REL
    }

    /// Whether outliers are stored among the codes.
    fn in_place(&self) -> bool {
        !self.is_relative() && self.config.flag("inplace_outliers")
    }

    fn rule<T: Float>(&self) -> Rule<T> {
        let config = &self.config;
        let twice = T::twice(config.f32("abs_error_bound"));
        match () {
            () if self.is_relative() => Rule::Relative(2.0 * (1.0 + config.f32("user_error_bound")).log2()),
            () if self.in_place() => Rule::InPlace(twice, config.u32("quant_radius")),
            () if config.flag("zigzag_codes") => Rule::Zigzag(twice),
            () => Rule::Signed(twice),
        }
    }

    fn stream<T: Float, C: Unsigned>(
        &self,
        outputs: Vec<Arc<dyn ByteStream>>,
        cx: &Context,
    ) -> Result<Arc<dyn ByteStream>> {
        let (codes, ports) = if self.in_place() {
            let [codes] = exactly(outputs)?;
            (codes, None)
        } else {
            let [codes, values, indices, count] = exactly(outputs)?;
            (codes, Some([values, indices, count]))
        };
        let n = codes.len() / to_u64(C::SIZE);
        let len = n
            .checked_mul(to_u64(T::SIZE))
            .ok_or_else(|| Error::corrupt(format!("{n} elements are more than 2^64 bytes"), "codes"))?;
        let names = Names { values: "outlier_vals", indices: "outlier_idxs" };
        let outliers = ports.map(|ports| Outliers::new(ports, names, n, cx));
        let windows = BlockWindows::new(len, to_u64(T::SIZE), scaled(codes.unit(), C::SIZE, T::SIZE));
        let codes = CodeBlocks::new(codes, C::SIZE);
        Ok(Arc::new(Values::<T, C> { codes, outliers, rule: self.rule(), windows, code: PhantomData }))
    }
}

impl Stage for Quantizer {
    fn name(&self) -> &'static str {
        "quantizer"
    }

    fn ports(&self) -> &[&'static str] {
        if self.in_place() { &["codes"] } else { &["codes", "outlier_vals", "outlier_idxs", "outlier_count"] }
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.input
    }

    fn output_type(&self, port: usize) -> DataType {
        match port {
            0 => self.code,
            1 => self.input,
            _ => U32,
        }
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        let (name, mode) = if self.is_relative() { ("user_error_bound", " relative") } else { ("abs_error_bound", "") };
        let bound = self.config.f32(name);
        vec![format!("eb {bound}{mode}"), format!("radius {}", self.config.u32("quant_radius"))]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let stream = match (self.input, self.code) {
            (F32, U16) => self.stream::<f32, u16>(outputs, cx),
            (F32, _) => self.stream::<f32, u32>(outputs, cx),
            (_, U16) => self.stream::<f64, u16>(outputs, cx),
            _ => self.stream::<f64, u32>(outputs, cx),
        };
        Ok(vec![stream?])
    }
}

/// The decoded array.
struct Values<T, C> {
    codes: CodeBlocks,
    outliers: Option<Outliers<T>>,
    rule: Rule<T>,
    windows: BlockWindows,
    code: PhantomData<fn() -> C>,
}

impl<T: Float, C: Unsigned> Blockwise for Values<T, C> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let sorted = self.outliers.as_ref().map(Outliers::sorted).transpose()?;
        let first = start / to_u64(T::SIZE);
        let mut bytes = ScratchBuffer::new(TILE * C::SIZE)?;
        self.codes.each(first, to_u64(out.len() / T::SIZE), |done, count, codes| {
            let (bytes, out) = (&mut *bytes, &mut out[done * T::SIZE..][..count * T::SIZE]);
            let decode = Decode::<T, C> { rule: self.rule, codes, bytes, out, code: PhantomData };
            let is_complete = match self.rule {
                // Each value is a call of a function that is compiled for any processor.
                Rule::Relative(_) => decode.run(Portable),
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
        let (input, own) = (Arc::clone(self.codes.stream()), Arc::clone(&self));
        let outliers = move |positions| match &own.outliers {
            Some(outliers) => outliers.sorted()?.bytes(positions),
            None => Ok((Vec::new(), Vec::new())),
        };
        let rule = match self.rule {
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
struct Decode<'a, T, C> {
    rule: Rule<T>,
    codes: Codes<'a>,
    /// Space for the codes of a tile.
    bytes: &'a mut [u8],
    out: &'a mut [u8],
    code: PhantomData<C>,
}

impl<T: Float, C: Unsigned> SimdLoop for Decode<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        for (tile, out) in self.out.chunks_mut(TILE * T::SIZE).enumerate() {
            vectors.prefetch(out);
            let count = out.len() / T::SIZE;
            let Some(codes) = self.codes.tile::<C>(vectors, tile, count, self.bytes) else { return false };
            values::<T, C>(self.rule, codes, out);
        }
        true
    }
}

/// Fills `out` with the values of `codes`.
#[inline(always)]
fn values<T: Float, C: Unsigned>(rule: Rule<T>, codes: &[u8], out: &mut [u8]) {
    #[inline(always)]
    fn each<T: Element, C: Unsigned>(codes: &[u8], out: &mut [u8], value: impl Fn(C) -> T) {
        for (own, code) in out.chunks_exact_mut(T::SIZE).zip(codes.chunks_exact(C::SIZE)) {
            value(C::get(code)).put(own);
        }
    }
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
        Rule::Relative(step) => {
            each(codes, out, |code: C| T::from_f32(relative(code.plain() as u32, step)).canonical());
        }
    }
}

/// The value of a code in mode REL. `step` is the logarithm of the ratio of neighboring values.
fn relative(code: u32, step: f32) -> f32 {
    let Some(code) = code.checked_sub(1) else { return 0.0 };
    let bin = (code >> 2) as f32;
    let bin = if code & 2 != 0 { -bin } else { bin };
    // exp2 in 64 bits, rounded once, as section 8 specifies for implementations without the GPU's approximation.
    let value = f64::from(bin * step).exp2() as f32;
    if code & 1 != 0 { -value } else { value }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{inverse, inverse_error, parse_error, round_trip};

    const NONE: &[u8] = &[];

    /// A configuration with a bound of 0.25: codes count halves.
    fn config(len: usize, types: [u8; 2], mode: u8, zigzag: u8, in_place: u8) -> Vec<u8> {
        let mut config = [0.25_f32, 0.5, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        config.extend([100_u32, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        config.extend(types);
        config.extend([mode, zigzag]);
        config.extend(f32::INFINITY.to_le_bytes());
        config.extend([in_place, 0, 0, 0]);
        config.truncate(len);
        config
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn codes_are_multiples_of_twice_the_bound() {
        let codes = [1, 0, 0xFF, 0xFF, 3, 0];
        let got = inverse(14, &config(36, [8, 1], 0, 0, 0), &[&codes, NONE, NONE, NONE]).unwrap();
        assert_eq!(floats(&got), [0.5, -0.5, 1.5]);
        let got = inverse(14, &config(28, [8, 1], 2, 1, 0), &[&codes, NONE, NONE, NONE]).unwrap();
        assert_eq!(floats(&got), [-0.5, -16384.0, -1.0]);
        let value = 7.25_f64.to_le_bytes();
        let got = inverse(14, &config(36, [9, 1], 0, 0, 0), &[&codes, &value, &[1, 0, 0, 0], &[1, 0, 0, 0]]).unwrap();
        assert_eq!(got, [0.5, 7.25, 1.5_f64].map(f64::to_le_bytes).concat());
    }

    #[test]
    fn in_place_values_keep_their_bits() {
        let nan = 0x7FC1_2345_u32;
        let codes = [3, nan, 199, 200].map(u32::to_le_bytes).concat();
        let got = inverse(14, &config(36, [8, 2], 0, 0, 1), &[&codes]).unwrap();
        let want = [(-1.0_f32).to_bits(), nan, (-50.0_f32).to_bits(), 200].map(u32::to_le_bytes).concat();
        assert_eq!(got, want);
    }

    #[test]
    fn relative_codes_are_powers_with_two_signs() {
        // A bound of 0.5: the step is 2 * log2(1.5).
        let codes = [0, 1, 2, 5, 7, 8].map(u16::to_le_bytes).concat();
        let got = inverse(14, &config(36, [8, 1], 1, 0, 1), &[&codes, NONE, NONE, NONE]).unwrap();
        let up = f64::from(2.0 * 1.5_f32.log2()).exp2() as f32;
        let down = f64::from(-2.0 * 1.5_f32.log2()).exp2() as f32;
        assert_eq!(floats(&got), [0.0, 1.0, -1.0, up, down, -down]);
    }

    #[test]
    fn every_type_pair_and_mode_decodes_as_specified() {
        for (text, dtype) in [
            ("quantizer:eb=0.01,cap=0.3,radius=2000", Dtype::F32),
            ("quantizer:eb=1e-6,code=u32,mode=noa,zigzag=1,bitshuffle:w=4,rze", Dtype::F32),
            ("quantizer:eb=1e-3,code=u32,mode=rel", Dtype::F32),
            ("quantizer:eb=1e-3,mode=rel", Dtype::F64),
            ("quantizer:eb=0.01,code=u32,inplace=1,zigzag=1", Dtype::F32),
            ("quantizer:eb=0.01,config=28", Dtype::F64),
            ("quantizer:eb=1e-5,code=u32,difference:in=i32,out=u32,chunk=16384,bitshuffle:w=4,rze", Dtype::F64),
        ] {
            round_trip(text, dtype, &[9_001], &field::smooth(dtype, &[9_001], 0.5, 4));
        }
    }

    #[test]
    fn undefined_quantizers_are_refused() {
        for (types, in_place, want) in [
            ([8, 0], 0, "element type uint8 is unknown (code_type, at byte 0x119)"),
            ([2, 1], 0, "element type uint32 is unknown (input_type, at byte 0x118)"),
            ([9, 2], 1, "in-place quantization from float64 to uint32 is unknown (input_type, at byte 0x118)"),
        ] {
            assert_eq!(parse_error(14, &config(36, types, 0, 1, in_place)), want);
        }
        assert_eq!(
            parse_error(14, &config(36, [8, 1], 4, 0, 0)),
            "error-bound mode 4 is unknown (eb_mode, at byte 0x11a)"
        );
        assert_eq!(
            parse_error(14, &config(27, [8, 1], 0, 0, 0)),
            "a configuration of 27 bytes is unknown (config_size, at byte 0x100)"
        );
        let config = config(36, [8, 1], 0, 0, 0);
        let e = inverse_error(14, &config, &[&[0; 6], &[0; 4], &[3, 0, 0, 0], &[1, 0, 0, 0]]);
        assert_eq!(e, "position 3 is outside the array of 3 elements (outlier_idxs)");
        assert_eq!(
            parse_error(14, &config),
            "a stage with 1 inputs and 1 outputs, not 1 and 4, is unknown (output_buffer_ids)"
        );
    }
}
