//! Quantizer (type 14): each value rounded independently, to a multiple of the bound or a power of it.
//!
//! Reference: sections 5.2, 6 (28-byte configurations) and 8 (exp2 and log2). No library reads all generations of this
//! stage from a file; each is decoded as the library that wrote it decompresses in memory.
#![forbid(unsafe_code)]

mod rules;
mod values;

use std::sync::Arc;

use super::DataType::{F32, F64, U16, U32};
use super::config::{Config, ConfigLayout, Field};
use super::outliers::{Count, Outliers, PortNames};
use super::types::{Float, Unsigned};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::fzm::inverse::Rule;
use crate::format::fzm::stream::ByteStream;
use rules::{Dither, Formula};
use values::QuantizedValues;

/// The mode of bounds relative to each value.
const REL: u8 = 1;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 14,
    name: "quantizer",
    family: Family::Quantizer,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Quantizer::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[28, 36, 48, 52, 56, 72],
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
        Field::flag("linear_mode", 33),
        Field::hole(34, 2).until(36),
        Field::flag("dither", 34).since(48),
        Field::zero(35, 5).since(48).until(56),
        Field::flag("linear_high_precision", 35).since(72),
        Field::flag("power_of_two_bound", 36).since(72),
        Field::flag("verify_reconstruction", 37).since(72),
        Field::zero(38, 2).since(72),
        Field::u64("dither_seed", 40),
        Field::f32("dither_strength", 48),
        Field::zero(52, 4),
        Field::f64("abs_error_bound_f64", 56),
        Field::f64("value_base_f64", 64),
    ],
};

/// Where the library of a generation makes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    /// In their own type.
    Own,
    /// In 32 bits, for any type.
    Single,
}

/// Radii in place, from which the library's codes are not zigzag codes.
const LARGEST_IN_PLACE: u32 = 1 << 30;

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
        let config = &stage.config;
        if stage.in_place() && (input, code) != (F32, U32) {
            let pair = format!("in-place quantization from {} to {}", input.name(), code.name());
            return Err(config.unknown("input_type", pair));
        }
        let radius = config.u32("quant_radius");
        if stage.in_place() && radius > LARGEST_IN_PLACE {
            return Err(config.unknown("quant_radius", format!("in-place quantization with a radius of {radius}")));
        }
        stage.check_flags()?;
        Ok(stage)
    }

    /// Fails if two modes exclude each other, or one needs another.
    fn check_flags(&self) -> Result<()> {
        let config = &self.config;
        let [linear, in_place, zigzag, dither] =
            ["linear_mode", "inplace_outliers", "zigzag_codes", "dither"].map(|name| config.flag(name));
        let relative = self.is_relative();
        for (name, is_wrong, why) in [
            (
                "linear_mode",
                linear && (relative || in_place || zigzag),
                "linear codes are absolute, and have no outliers",
            ),
            ("dither", dither && (linear || in_place), "values of linear or in-place codes have no dither"),
            ("linear_high_precision", config.flag("linear_high_precision") && !linear, "only linear codes have it"),
            (
                "power_of_two_bound",
                config.flag("power_of_two_bound") && relative,
                "a relative bound is not a power of two",
            ),
            ("verify_reconstruction", config.flag("verify_reconstruction") && !in_place, "only in-place codes have it"),
        ] {
            if is_wrong {
                return Err(config.corrupt(name, why));
            }
        }
        Ok(())
    }

    fn is_relative(&self) -> bool {
        self.config.u8("eb_mode") == REL
    }

    /// Whether outliers are stored among the codes.
    fn in_place(&self) -> bool {
        !self.is_relative() && self.config.flag("inplace_outliers")
    }

    /// Whether there are no outlier ports.
    fn is_alone(&self) -> bool {
        self.in_place() || self.config.flag("linear_mode")
    }

    /// The absolute bound, with all bits that the configuration has.
    fn bound(&self) -> f64 {
        let precise = self.config.f64("abs_error_bound_f64");
        if precise == 0.0 { self.config.f32("abs_error_bound").into() } else { precise }
    }

    /// Section 5.2, f64 data with configurations of 48 to 56 bytes.
    fn precision(&self) -> Precision {
        if self.input == F64 && (48..=56).contains(&self.config.len()) { Precision::Single } else { Precision::Own }
    }

    /// The formula from codes to values of `T`.
    fn formula<T: Float>(&self) -> Formula<T> {
        let config = &self.config;
        let (eb, zigzag) = (T::nearest(self.bound()), config.flag("zigzag_codes"));
        let step = 2.0 * (1.0 + config.f32("user_error_bound")).log2();
        let twice = T::nearest(2.0) * eb;
        if config.flag("dither") {
            let strength = if config.has("dither_strength") { config.f32("dither_strength") } else { 1.0 };
            let dither = Dither { seed: config.u64("dither_seed"), zigzag };
            let amplitude = eb * T::from_f32(strength);
            return match self.precision() {
                _ if self.is_relative() => Formula::DitheredPower { dither, step, amplitude: step * 0.5 * strength },
                Precision::Single => {
                    Formula::DitheredSingle { dither, twice: single(twice), amplitude: single(amplitude) }
                }
                Precision::Own => Formula::Dithered { dither, twice, amplitude },
            };
        }
        if config.flag("linear_high_precision") {
            return Formula::Precise(2.0 * eb.into());
        }
        match self.precision() {
            _ if self.is_relative() => Formula::Rule(Rule::Relative(step)),
            _ if self.in_place() => Formula::Rule(Rule::InPlace(twice, config.u32("quant_radius"))),
            Precision::Single => Formula::Single { twice: single(twice), zigzag },
            Precision::Own if zigzag => Formula::Rule(Rule::Zigzag(twice)),
            Precision::Own => Formula::Rule(Rule::Signed(twice)),
        }
    }

    fn stream<T: Float, C: Unsigned>(
        &self,
        outputs: Vec<Arc<dyn ByteStream>>,
        cx: &Context,
    ) -> Result<Arc<dyn ByteStream>> {
        let (codes, ports) = if self.is_alone() {
            let [codes] = exactly(outputs)?;
            (codes, None)
        } else if outputs.len() == 3 {
            let [codes, values, indices] = exactly(outputs)?;
            let count = Count::Config(self.config.u64("outlier_count"));
            (codes, Some(([values, indices], count)))
        } else {
            let [codes, values, indices, count] = exactly(outputs)?;
            (codes, Some(([values, indices], Count::Port(count))))
        };
        let n = codes.len() / to_u64(C::SIZE);
        if n.checked_mul(to_u64(T::SIZE)).is_none() {
            return Err(Error::corrupt(format!("{n} elements are more than 2^64 bytes"), "codes"));
        }
        let names = PortNames { values: "outlier_vals", indices: "outlier_idxs" };
        let outliers = ports.map(|(ports, count)| Outliers::new(ports, count, names, n, cx)).transpose()?;
        Ok(Arc::new(QuantizedValues::<T, C>::new(codes, n, outliers, self.formula())))
    }
}

/// The nearest number of 32 bits.
fn single<T: Float>(x: T) -> f32 {
    let x: f64 = x.into();
    x as f32
}

impl Stage for Quantizer {
    fn ports(&self) -> &[&'static str] {
        let all: &[&'static str] = &["codes", "outlier_vals", "outlier_idxs", "outlier_count"];
        match self.config.outputs() {
            _ if self.is_alone() => &all[..1],
            3 => &all[..3],
            _ => all,
        }
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
        let bound = if self.is_relative() {
            format!("eb {} relative", self.config.f32("user_error_bound"))
        } else if self.input == F32 {
            format!("eb {}", single(self.bound()))
        } else {
            format!("eb {}", self.bound())
        };
        let radius = format!("radius {}", self.config.u32("quant_radius"));
        vec![bound, if self.config.flag("linear_mode") { "linear".into() } else { radius }]
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

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is compared is exact")]
mod tests;
