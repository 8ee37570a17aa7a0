//! `GInterp` (type 22): values on a coarse grid, from which splines predict finer and finer ones; codes correct them.
//!
//! Reference: section 22. A tile of 16 x 16 (x 16) elements with its far faces depends on nothing outside of it, so any
//! box is decoded from the tiles that it touches.
//!
//! Limits: a tile row of a few hundred elements is decoded at a time; its codes take less than a megabyte.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

mod band;
mod decoded;
mod grids;
mod layout;
mod spline;
#[cfg(test)]
mod tests;
mod tile;

use std::sync::Arc;

use super::DataType::{F32, F64, U8, U16, U32};
use super::config::Config;
use super::types::Unsigned;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::ByteStream;
use crate::text;

use decoded::GinterpArray;
use spline::{Dequantize, Real, SplineLevel};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 22,
    name: "ginterp",
    family: Family::Quantizer,
    layout: &layout::ANY,
    parse: |config| Ok(Box::new(GInterp::parse(&config)?)),
};

/// Elements between two anchors.
const TILE: u64 = 16;
/// Levels below the anchors.
const LEVELS: usize = 4;

/// A stage.
#[derive(Debug)]
struct GInterp {
    config: Config,
    bound: f64,
    input: DataType,
    code: DataType,
    /// Slowest first; rank 2 has one plane.
    dims: [u64; 3],
    /// Elements of the array.
    count: u64,
}

impl GInterp {
    fn parse(config: &Config) -> Result<Self> {
        let (config, bound) = layout::of(config)?;
        let input = config.element_type("input_type", &[F32, F64], F32)?;
        let code = config.element_type("code_type", &[U8, U16, U32], U8)?;
        let dims = ["dim_z", "dim_y", "dim_x"].map(|name| config.u64(name));
        let rank = config.u8("ndim");
        if !matches!(rank, 2 | 3) {
            return Err(config.unknown("ndim", format!("{rank} dimensions")));
        }
        if dims.contains(&0) || dims[1] < 2 || (rank == 2) != (dims[0] == 1) {
            return Err(config.corrupt("ndim", format!("{} is not an array of {rank} dimensions", text::shape(&dims))));
        }
        for (axis, (dim, name)) in dims.into_iter().zip(["anchor_z", "anchor_y", "anchor_x"]).enumerate() {
            let want = if axis == 0 && rank == 2 { 1 } else { dim.div_ceil(TILE) };
            if config.u64(name) != want {
                return Err(config.corrupt(name, format!("{} anchors for {dim} elements", config.u64(name))));
            }
        }
        if config.u64("radius") >= 1 << 31 {
            return Err(config.corrupt("radius", format!("{} is not below 2^31", config.u64("radius"))));
        }
        let count = dims.iter().try_fold(1_u64, |n, &dim| n.checked_mul(dim));
        let count = count.filter(|&count| count <= config.u64("num_codes"));
        let Some(count) = count else {
            return Err(config.corrupt(
                "num_codes",
                format!("{} codes for {} elements", config.u64("num_codes"), text::shape(&dims)),
            ));
        };
        Ok(Self { config, bound, input, code, dims, count })
    }

    /// How codes become values; all factors as the reference library rounds them.
    fn rules<T: Real>(&self) -> Dequantize<T> {
        let config = &self.config;
        let (alpha, beta) = (config.f64("alpha"), config.f64("beta"));
        let bound: f64 = T::rounded(self.bound).into();
        let top = T::rounded(2.0 * bound);
        let mut width = top;
        let levels = std::array::from_fn(|level| {
            if level > 0 {
                width = T::rounded(width.into() / alpha);
            }
            let least: f64 = top.into() / beta;
            let limited = if width.into() < least { T::rounded(least) } else { width };
            SplineLevel {
                unit: 1 << level,
                width: limited,
                is_multi: config.flag(layout::USE_MD[level]),
                is_natural: config.flag(layout::USE_NATURAL[level]),
                is_reverse: config.flag(layout::REVERSE[level]),
            }
        });
        Dequantize { radius: T::of(i64::from(config.u32("radius"))), levels, is_flat: self.dims[0] == 1 }
    }

    fn stream<T: Real, C: Unsigned>(
        &self,
        outputs: Vec<Arc<dyn ByteStream>>,
        cx: &Context,
    ) -> Result<Arc<dyn ByteStream>> {
        let [codes, anchors, values, indices] = exactly(outputs)?;
        let outliers = self.config.u32("outlier_count");
        let size = u128::from(to_u64(T::SIZE));
        let extents: u128 =
            ["anchor_x", "anchor_y", "anchor_z"].map(|name| u128::from(self.config.u64(name))).iter().product();
        for (need, port, what) in [
            (u128::from(self.count) * u128::from(to_u64(C::SIZE)), &codes, "codes"),
            (extents * size, &anchors, "anchor"),
            (u128::from(outliers) * size, &values, "outlier_vals"),
            (u128::from(outliers) * 4, &indices, "outlier_idxs"),
        ] {
            if need > u128::from(port.len()) {
                let need = u64::try_from(need).unwrap_or(u64::MAX);
                return Err(Error::new(Kind::Truncated { need, have: port.len() }, what));
            }
        }
        let len = self.count.checked_mul(to_u64(T::SIZE));
        let len =
            len.ok_or_else(|| Error::corrupt(format!("{} elements are more than 2^64 bytes", self.count), "codes"))?;
        let decoded = GinterpArray::<T, C>::new([codes, anchors], self.rules(), self.dims, len);
        Ok(Arc::new(decoded.with_outliers([values, indices], outliers, self.count, cx)?))
    }
}

impl Stage for GInterp {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        &["codes", "anchor", "outlier_vals", "outlier_idxs"]
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.input
    }

    fn output_type(&self, port: usize) -> DataType {
        match port {
            0 => self.code,
            3 => U32,
            _ => self.input,
        }
    }

    fn summary(&self) -> Vec<String> {
        let dims = self.dims().unwrap_or_default();
        vec![
            format!("eb {}", self.bound),
            format!("radius {}", self.config.u32("radius")),
            dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x "),
        ]
    }

    fn dims(&self) -> Option<Vec<u64>> {
        Some(self.dims[usize::from(self.dims[0] == 1)..].to_vec())
    }

    fn has_own_length(&self) -> bool {
        true
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let stream = match (self.input, self.code) {
            (F32, U8) => self.stream::<f32, u8>(outputs, cx),
            (F32, U16) => self.stream::<f32, u16>(outputs, cx),
            (F32, _) => self.stream::<f32, u32>(outputs, cx),
            (_, U8) => self.stream::<f64, u8>(outputs, cx),
            (_, U16) => self.stream::<f64, u16>(outputs, cx),
            _ => self.stream::<f64, u32>(outputs, cx),
        };
        Ok(vec![stream?])
    }
}
