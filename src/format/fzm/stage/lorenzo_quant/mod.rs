//! `LorenzoQuant` (type 1; 12 and 13 in older files): floats as quantized differences from their neighbors.
//!
//! Reference: sections 5.1 and 6 (32-, 40-, 44- and 64-byte configurations). Decoding sums the differences within
//! independent tiles: in integers if these are exact, which is always the case except for huge values; otherwise in the
//! reference library's order of float additions.
#![forbid(unsafe_code)]

mod coded;
mod number;
mod rank1;
mod rank_n;
mod reference_order;

use std::sync::Arc;

use super::DataType::{F32, F64, U8, U16, U32};
use super::boxes::Shape;
use super::config::{Config, ConfigLayout, Field};
use super::outliers::{Count, Outliers, PortNames};
use super::types::Unsigned;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::fzm::inverse::Coding;
use crate::format::fzm::stream::ByteStream;
use coded::Coded;
use number::Real;
use rank_n::RankN;
use rank1::Rank1;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 1,
    name: "lorenzo_quant",
    family: Family::Quantizer,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(LorenzoQuant::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[32, 40, 44, 64],
    fields: &[
        Field::f32("error_bound", 0),
        Field::u32("quant_radius", 4),
        Field::u32("num_elements", 8),
        Field::u32("outlier_count", 12),
        Field::element_type("input_type", 16),
        Field::element_type("code_type", 17),
        Field::u8("ndim", 18),
        Field::mode("eb_mode", 19),
        Field::u32("dim_x", 20),
        Field::u32("dim_y", 24),
        Field::u32("dim_z", 28),
        Field::f32("user_eb", 32),
        Field::f32("value_base", 36),
        Field::boolean("zigzag_codes", 40),
        Field::boolean("centering", 41),
        Field::zero(42, 2),
        Field::hole(44, 4),
        Field::f64("error_bound_f64", 48),
        Field::f64("value_base_f64", 56),
    ],
};

/// Bytes of the shortest configuration.
pub(super) const SHORTEST: usize = 32;

/// A stage.
#[derive(Debug)]
struct LorenzoQuant {
    config: Config,
    /// With all bits that the configuration has.
    error_bound: f64,
    num_elements: u32,
    input: DataType,
    code: DataType,
    ndim: u8,
    /// x, y, z.
    dim: [u32; 3],
    coding: Coding,
}

impl LorenzoQuant {
    fn parse(config: Config) -> Result<Self> {
        let input = config.element_type("input_type", &[F32, F64], DataType::Opaque)?;
        let code = config.element_type("code_type", &[U8, U16, U32], DataType::Opaque)?;
        if !matches!((input, code), (F32, U8 | U16) | (F64, U16 | U32)) {
            let pair = format!("quantization from {} to {}", input.name(), code.name());
            return Err(config.unknown("input_type", pair));
        }
        let (ndim, quant_radius) = (config.u8("ndim"), config.u32("quant_radius"));
        if ndim > 3 {
            return Err(config.corrupt("ndim", format!("{ndim} dimensions, but at most 3 are allowed")));
        }
        if config.flag("centering") && ndim > 1 {
            return Err(config.corrupt("centering", format!("means of an array of {ndim} dimensions")));
        }
        let coding = match config.flag("zigzag_codes") {
            _ if !config.has("user_eb") => Coding::Biased(quant_radius),
            false => Coding::Signed,
            true => Coding::Zigzag,
        };
        // An outlier's code is the radius itself.
        if matches!(coding, Coding::Biased(_)) && u64::from(quant_radius) >> (8 * code.size()) != 0 {
            return Err(
                config.corrupt("quant_radius", format!("{quant_radius} does not fit a code of {}", code.name()))
            );
        }
        let dim = ["dim_x", "dim_y", "dim_z"].map(|name| config.u32(name));
        let precise = config.f64("error_bound_f64");
        let error_bound = if precise == 0.0 { config.f32("error_bound").into() } else { precise };
        let num_elements = config.u32("num_elements");
        Ok(Self { config, error_bound, num_elements, input, code, ndim, dim, coding })
    }

    /// The dimensions, slowest first, by section 5.1 step 1.
    fn dims_zyx(&self) -> [u64; 3] {
        let [dim_x, dim_y, dim_z] = self.dim.map(u64::from);
        let ny = if self.ndim >= 2 { dim_y.max(1) } else { 1 };
        let nz = if self.ndim >= 3 { dim_z.max(1) } else { 1 };
        let nx = if dim_x > 0 { dim_x } else { u64::from(self.num_elements) / (dim_y.max(1) * dim_z.max(1)) };
        [nz, ny, nx]
    }

    fn stream<T: Real, C: Unsigned>(
        &self,
        outputs: Vec<Arc<dyn ByteStream>>,
        cx: &Context,
    ) -> Result<Arc<dyn ByteStream>> {
        self.stream_below::<T, C>(outputs, cx, i64::MAX)
    }

    /// The inverse; sums beyond `limit` are computed in the reference library's order.
    fn stream_below<T: Real, C: Unsigned>(
        &self,
        outputs: Vec<Arc<dyn ByteStream>>,
        cx: &Context,
        limit: i64,
    ) -> Result<Arc<dyn ByteStream>> {
        let own_count = Count::Config(self.config.u64("outlier_count"));
        let (codes, ports, count, means) = if outputs.len() == 3 {
            let [codes, errors, indices] = exactly(outputs)?;
            (codes, [errors, indices], own_count, None)
        } else {
            let [codes, errors, indices, last] = exactly(outputs)?;
            let (count, means) =
                if self.config.flag("centering") { (own_count, Some(last)) } else { (Count::Port(last), None) };
            (codes, [errors, indices], count, means)
        };
        let n = codes.len() / to_u64(C::SIZE);
        if n.checked_mul(to_u64(T::SIZE)).is_none() {
            return Err(Error::corrupt(format!("{n} elements are more than 2^64 bytes"), "codes"));
        }
        let names = PortNames { values: "outlier_errors", indices: "outlier_indices" };
        let outliers = Outliers::new(ports, count, names, n, cx)?;
        let twice_bound = T::nearest(2.0) * T::nearest(self.error_bound);
        let coded = Arc::new(Coded::<T, C>::new(codes, outliers, self.coding, twice_bound));
        let dims @ [nz, ny, nx] = self.dims_zyx();
        if n == 0 || (nz == 1 && ny == 1) {
            return Ok(Arc::new(Rank1::new(coded, means, limit)?));
        }
        let product = nz.checked_mul(ny).and_then(|n| n.checked_mul(nx));
        if product.is_none_or(|product| product > n) {
            return Err(Error::corrupt(format!("{nx} x {ny} x {nz} elements, but {n} codes"), "dim_x"));
        }
        Ok(Arc::new(RankN::new(coded, limit, Shape::new(dims))))
    }
}

impl Stage for LorenzoQuant {
    fn ports(&self) -> &[&'static str] {
        match self.config.outputs() {
            _ if self.config.flag("centering") => &["codes", "outlier_errors", "outlier_indices", "means"],
            3 => &["codes", "outlier_errors", "outlier_indices"],
            _ => &["codes", "outlier_errors", "outlier_indices", "outlier_count"],
        }
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.input
    }

    fn output_type(&self, port: usize) -> DataType {
        match port {
            0 => self.code,
            1 => self.input,
            3 if self.config.flag("centering") => self.input,
            _ => U32,
        }
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        let bound = match self.input {
            F32 => (self.error_bound as f32).to_string(),
            _ => self.error_bound.to_string(),
        };
        let mut lines = vec![format!("eb {bound}"), format!("radius {}", self.config.u32("quant_radius"))];
        if let Some(dims) = self.dims() {
            lines.push(dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x "));
        }
        lines
    }

    fn dims(&self) -> Option<Vec<u64>> {
        let [nz, ny, nx] = self.dims_zyx();
        match (nz, ny) {
            (1, 1) => (self.dim[0] > 0).then(|| vec![nx]),
            (1, _) => Some(vec![ny, nx]),
            _ => Some(vec![nz, ny, nx]),
        }
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let stream = match (self.input, self.code) {
            (F32, U8) => self.stream::<f32, u8>(outputs, cx),
            (F32, _) => self.stream::<f32, u16>(outputs, cx),
            (_, U16) => self.stream::<f64, u16>(outputs, cx),
            _ => self.stream::<f64, u32>(outputs, cx),
        };
        Ok(vec![stream?])
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is compared is exact")]
mod tests;
