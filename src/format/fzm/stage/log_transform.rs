//! `LogTransform` (type 33): floats as the logarithm of their magnitude and a bitmap of signs.
//!
//! Reference: sections 33 and 8 (exp2). Zeros, infinities, NaNs and values that the logarithm would change too much are
//! outliers, stored as they are.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::DataType::{F32, U8, U32};
use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::config::{Config, ConfigLayout, Field};
use super::outliers::{Count, Outliers, PortNames};
use super::scratch::ScratchBuffer;
use super::types::{Element, Float};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 33,
    name: "log_transform",
    family: Family::Shuffler,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(LogTransform::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[20],
    fields: &[
        Field::f32("error_bound", 0),
        Field::f32("threshold", 4),
        Field::u32("num_elements", 8),
        Field::u32("outlier_count", 12),
        Field::element_type("input_type", 16),
        Field::zero(17, 3),
    ],
};

/// Elements with signs that fill whole bytes.
const GROUP: u64 = 8;

/// A stage.
struct LogTransform {
    config: Config,
}

impl LogTransform {
    fn parse(config: Config) -> Result<Self> {
        config.element_type("input_type", &[F32], F32)?;
        Ok(Self { config })
    }
}

impl Stage for LogTransform {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        &["output", "signs", "outlier_vals", "outlier_idxs"]
    }

    fn input_type(&self, _input: usize) -> DataType {
        F32
    }

    fn output_type(&self, port: usize) -> DataType {
        match port {
            1 => U8,
            3 => U32,
            _ => F32,
        }
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("eb {} relative", self.config.f32("error_bound"))]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [logs, signs, values, indices] = exactly(outputs)?;
        let count = match self.config.u64("num_elements") {
            0 => logs.len() / 4,
            count => count,
        };
        let outliers = self.config.u32("outlier_count");
        for (need, have, what) in [
            (4 * u128::from(count), &logs, "output"),
            (u128::from(count.div_ceil(GROUP)), &signs, "signs"),
            (4 * u128::from(outliers), &values, "outlier_vals"),
            (4 * u128::from(outliers), &indices, "outlier_idxs"),
        ] {
            if need > u128::from(have.len()) {
                let need = u64::try_from(need).unwrap_or(u64::MAX);
                return Err(Error::new(Kind::Truncated { need, have: have.len() }, what));
            }
        }
        let windows = BlockWindows::new(4 * count, 4 * GROUP, scaled(logs.unit(), 4, 4));
        let names = PortNames { values: "outlier_vals", indices: "outlier_idxs" };
        let outliers = match outliers {
            0 => None,
            n => Some(Outliers::new([values, indices], Count::Config(n.into()), names, count, cx)?),
        };
        Ok(vec![Arc::new(LogValues { logs, signs, outliers, windows })])
    }
}

/// The decoded values.
struct LogValues {
    logs: Arc<dyn ByteStream>,
    signs: Arc<dyn ByteStream>,
    outliers: Option<Outliers<f32>>,
    windows: BlockWindows,
}

impl Blockwise for LogValues {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let (first, count) = (start / 4, out.len() / 4);
        let mut signs = ScratchBuffer::new(count.div_ceil(GROUP as usize))?;
        self.signs.read(first / GROUP, &mut signs)?;
        self.logs.read(start, out)?;
        for (eight, signs) in out.chunks_mut(4 * GROUP as usize).zip(signs.iter()) {
            for (bit, own) in eight.chunks_exact_mut(4).enumerate() {
                // exp2 in 64 bits, rounded once, as section 8 specifies for implementations without the GPU's
                // approximation.
                let value = (f64::from(f32::get(own)).exp2() as f32).canonical();
                let sign = u32::from(signs >> bit & 1) << 31;
                f32::from_bits(value.to_bits() ^ sign).put(own);
            }
        }
        let Some(outliers) = &self.outliers else { return Ok(()) };
        outliers.sorted()?.between(first, first + to_u64(count), |at, value| {
            let place = (at - first) as usize * 4;
            value.put(&mut out[place..place + 4]);
        })
    }

    fn setup(&self) -> Setup {
        self.outliers.as_ref().map_or(Setup::None, Outliers::setup)
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{inverse, inverse_error, parse_error, round_trip};

    fn config(count: u32, outliers: u32) -> Vec<u8> {
        let floats = [1e-3_f32, 0.0].map(f32::to_le_bytes).concat();
        [&floats[..], &count.to_le_bytes(), &outliers.to_le_bytes(), &[8, 0, 0, 0]].concat()
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn logarithms_signs_and_outliers_make_values() {
        let logs = bytes(&[0.0, 1.0, -2.0, 10.0, -126.0, 0.5, 0.0, 0.0, 3.0]);
        let (nan, at) = (f32::from_bits(0xFFC1_2345), [4, 0, 0, 0]);
        let got = inverse(33, &config(9, 1), &[&logs, &[0b10, 1], &bytes(&[nan]), &at]).unwrap();
        let root = f64::from(0.5_f32).exp2() as f32;
        assert_eq!(got, bytes(&[1.0, -2.0, 0.25, 1024.0, nan, root, 1.0, 1.0, -8.0]));
        assert_eq!(inverse(33, &config(2, 0), &[&logs, &[0], &[], &[]]).unwrap(), bytes(&[1.0, 2.0]));
        assert_eq!(inverse(33, &config(0, 0), &[&logs, &[0, 0], &[], &[]]).unwrap().len(), logs.len());
    }

    #[test]
    fn values_of_every_kind_decode_as_the_writer_expects() {
        let mut data = field::smooth(Dtype::F32, &[9001], 1.0, 3);
        for (i, x) in [0.0, -0.0, f32::INFINITY, f32::NAN, 1e-42, 3e38].into_iter().enumerate() {
            data[4 * 100 * i..][..4].copy_from_slice(&x.to_le_bytes());
        }
        for text in ["log_transform", "log_transform:threshold=5", "log_transform,lorenzo_quant:eb=1e-3,ans"] {
            round_trip(text, Dtype::F32, &[9001], &data);
        }
        round_trip("log_transform,ans:from=0,port=outlier_vals,ans:from=0,port=signs", Dtype::F32, &[9001], &data);
    }

    #[test]
    fn ports_that_are_too_short_are_refused() {
        let (logs, signs) = (bytes(&[1.0; 9]), [0, 0]);
        let error = |count, outliers, ports: [&[u8]; 4]| inverse_error(33, &config(count, outliers), &ports);
        assert_eq!(error(10, 0, [&logs, &signs, &[], &[]]), "needs 40 bytes, 36 left (output)");
        assert_eq!(error(9, 0, [&logs, &signs[1..], &[], &[]]), "needs 2 bytes, 1 left (signs)");
        assert_eq!(error(9, 1, [&logs, &signs, &[], &[0; 4]]), "needs 4 bytes, 0 left (outlier_vals)");
        assert_eq!(error(9, 1, [&logs, &signs, &[0; 4], &[0; 3]]), "needs 4 bytes, 3 left (outlier_idxs)");
        let e = error(9, 1, [&logs, &signs, &[0; 4], &[9, 0, 0, 0]]);
        assert_eq!(e, "position 9 is outside the array of 9 elements (outlier_idxs)");
        let mut wide = config(1, 0);
        wide[16] = 9;
        assert!(parse_error(33, &wide).starts_with("element type float64 is unknown ("));
    }
}
