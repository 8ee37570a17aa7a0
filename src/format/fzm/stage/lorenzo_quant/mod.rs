//! `LorenzoQuant` (type 1; 12 and 13 in older files): floats as quantized differences from their neighbors.
//!
//! Reference: sections 5.1 and 6 (32-, 40- and 44-byte configurations). Decoding sums the differences within
//! independent tiles: in integers if these are exact, which is always the case except for huge values; otherwise in the
//! reference library's order of float additions.
#![forbid(unsafe_code)]

mod coded;
mod number;
mod rank1;
mod rank_n;
mod reference_order;
mod shape;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::DataType::{F32, F64, U8, U16, U32};
use super::outliers::{Names, Outliers};
use super::types::Unsigned;
use super::{Context, DataType, Stage, exactly, field, float, mode_name};
use crate::bytes::{Cursor, to_u64};
use crate::error::{Error, Result};
use crate::format::fzm::inverse::Coding;
use crate::format::fzm::stream::ByteStream;
use coded::Coded;
use number::Real;
use rank_n::RankN;
use rank1::Rank1;
use shape::Shape;

/// The configuration.
#[derive(Debug)]
pub(super) struct LorenzoQuant {
    error_bound: f32,
    quant_radius: u32,
    num_elements: u32,
    outlier_count: u32,
    input: DataType,
    code: DataType,
    ndim: u8,
    eb_mode: u8,
    /// x, y, z.
    dim: [u32; 3],
    user_eb: Option<f32>,
    value_base: Option<f32>,
    zigzag_codes: Option<u8>,
    coding: Coding,
}

impl LorenzoQuant {
    /// Bytes of the shortest configuration.
    pub(super) const SHORTEST: usize = 32;

    /// Stage type 1, or 12 and 13 with at least [`Self::SHORTEST`] bytes of configuration.
    pub(super) fn parse(mut config: Cursor) -> Result<Self> {
        let len = config.len();
        let error_bound = config.f32_le("error_bound")?;
        let radius_at = config.at();
        let quant_radius = config.u32_le("quant_radius")?;
        let num_elements = config.u32_le("num_elements")?;
        let outlier_count = config.u32_le("outlier_count")?;
        let types_at = config.at();
        let input = DataType::take(&mut config, "input_type")?;
        let code = DataType::take(&mut config, "code_type")?;
        if !matches!((input, code), (F32, U8 | U16) | (F64, U16 | U32)) {
            let pair = format!("quantization from {} to {} is not defined", input.name(), code.name());
            return Err(Error::corrupt(pair, "input_type").at(types_at));
        }
        let ndim_at = config.at();
        let ndim = config.u8("ndim")?;
        if ndim > 3 {
            return Err(Error::corrupt(format!("{ndim} dimensions, but at most 3 are allowed"), "ndim").at(ndim_at));
        }
        let eb_mode = config.u8("eb_mode")?;
        let dim = [config.u32_le("dim_x")?, config.u32_le("dim_y")?, config.u32_le("dim_z")?];
        let (mut user_eb, mut value_base, mut zigzag_codes) = (None, None, None);
        if len >= 40 {
            (user_eb, value_base) = (Some(config.f32_le("user_eb")?), Some(config.f32_le("value_base")?));
        }
        if len >= 44 {
            zigzag_codes = Some(config.u8("zigzag_codes")?);
        }
        let coding = match (len, zigzag_codes) {
            (..40, _) => Coding::Biased(quant_radius),
            (_, None | Some(0)) => Coding::Signed,
            _ => Coding::Zigzag,
        };
        // An outlier's code is the radius itself.
        if matches!(coding, Coding::Biased(_)) && u64::from(quant_radius) >> (8 * code.size()) != 0 {
            let why = format!("{quant_radius} does not fit a code of {}", code.name());
            return Err(Error::corrupt(why, "quant_radius").at(radius_at));
        }
        Ok(Self {
            error_bound,
            quant_radius,
            num_elements,
            outlier_count,
            input,
            code,
            ndim,
            eb_mode,
            dim,
            user_eb,
            value_base,
            zigzag_codes,
            coding,
        })
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
        outputs: [Arc<dyn ByteStream>; 4],
        cx: &Context,
    ) -> Result<Arc<dyn ByteStream>> {
        self.stream_below::<T, C>(outputs, cx, i64::MAX)
    }

    /// The inverse; sums beyond `limit` are computed in the reference library's order.
    fn stream_below<T: Real, C: Unsigned>(
        &self,
        [codes, errors, indices, count]: [Arc<dyn ByteStream>; 4],
        cx: &Context,
        limit: i64,
    ) -> Result<Arc<dyn ByteStream>> {
        let n = codes.len() / to_u64(C::SIZE);
        if n.checked_mul(to_u64(T::SIZE)).is_none() {
            return Err(Error::corrupt(format!("{n} elements are more than 2^64 bytes"), "codes"));
        }
        let names = Names { values: "outlier_errors", indices: "outlier_indices" };
        let outliers = Outliers::new([errors, indices, count], names, n, cx);
        let coded = Arc::new(Coded::<T, C>::new(codes, outliers, self.coding, T::twice(self.error_bound)));
        let dims @ [nz, ny, nx] = self.dims_zyx();
        if n == 0 || (nz == 1 && ny == 1) {
            return Ok(Arc::new(Rank1::new(coded, limit)));
        }
        let product = nz.checked_mul(ny).and_then(|n| n.checked_mul(nx));
        if product.is_none_or(|product| product > n) {
            return Err(Error::corrupt(format!("{nx} x {ny} x {nz} elements, but {n} codes"), "dim_x"));
        }
        Ok(Arc::new(RankN::new(coded, limit, Shape::new(dims))))
    }
}

impl Stage for LorenzoQuant {
    fn name(&self) -> &'static str {
        "lorenzo_quant"
    }

    fn ports(&self) -> &'static [&'static str] {
        &["codes", "outlier_errors", "outlier_indices", "outlier_count"]
    }

    fn input_type(&self) -> DataType {
        self.input
    }

    fn output_type(&self, port: usize) -> DataType {
        match port {
            0 => self.code,
            1 => self.input,
            _ => U32,
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let [dim_x, dim_y, dim_z] = self.dim;
        let mut fields: Map<String, Value> = [
            field("error_bound", float(self.error_bound)),
            field("quant_radius", self.quant_radius),
            field("num_elements", self.num_elements),
            field("outlier_count", self.outlier_count),
            field("input_type", self.input.name()),
            field("code_type", self.code.name()),
            field("ndim", self.ndim),
            field("eb_mode", mode_name(self.eb_mode)),
            field("dim_x", dim_x),
            field("dim_y", dim_y),
            field("dim_z", dim_z),
        ]
        .into_iter()
        .collect();
        fields.extend(self.user_eb.map(|v| field("user_eb", float(v))));
        fields.extend(self.value_base.map(|v| field("value_base", float(v))));
        fields.extend(self.zigzag_codes.map(|v| field("zigzag_codes", v != 0)));
        fields
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = vec![format!("eb {}", self.error_bound), format!("radius {}", self.quant_radius)];
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

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Arc<dyn ByteStream>> {
        let outputs = exactly(outputs)?;
        match (self.input, self.code) {
            (F32, U8) => self.stream::<f32, u8>(outputs, cx),
            (F32, _) => self.stream::<f32, u16>(outputs, cx),
            (_, U16) => self.stream::<f64, u16>(outputs, cx),
            _ => self.stream::<f64, u32>(outputs, cx),
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is compared is exact")]
mod tests;
