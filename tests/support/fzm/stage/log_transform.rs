//! `LogTransform` (type 33): the logarithm of every magnitude, and a bitmap of signs.

use std::borrow::Cow;

use super::outliers::capacity;
use super::{Encoded, Port, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, whole};
use crate::spec::Params;

/// How far a value may be off after its own round trip, relative to it.
const NEAR: f64 = 1e-6 * std::f64::consts::LN_2;

#[derive(Debug)]
pub(crate) struct LogTransform {
    bound: f64,
    threshold: f64,
    cap: f64,
}

impl LogTransform {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let stage = Self { bound: p.take("eb", 1e-3)?, threshold: p.take("threshold", 0.0)?, cap: p.take("cap", 1.0)? };
        if input == Dtype::F32 { Ok(stage) } else { Err(format!("does not know {}", input.name())) }
    }

    /// The logarithm of a value; `None` if the value is an outlier.
    fn log(&self, x: f32) -> Option<f32> {
        if !x.is_normal() || f64::from(x.abs()) < self.threshold {
            return None;
        }
        let y = f64::from(x.abs()).log2() as f32;
        let off = (f64::from(exp2(y)) - f64::from(x.abs())).abs();
        (off <= NEAR * f64::from(x.abs())).then_some(y)
    }
}

/// In 64 bits, rounded once.
fn exp2(y: f32) -> f32 {
    f64::from(y).exp2() as f32
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))
}

impl Stage for LogTransform {
    fn kind(&self) -> u16 {
        33
    }

    fn name(&self) -> &'static str {
        "log_transform"
    }

    fn output(&self) -> Dtype {
        Dtype::F32
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        vec![("output", Dtype::F32), ("signs", Dtype::U8), ("outlier_vals", Dtype::F32), ("outlier_idxs", Dtype::U32)]
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let input = whole(input, 4);
        let n = input.len() / 4;
        let (mut logs, mut signs, mut outliers) = (Vec::new(), vec![0_u8; n.div_ceil(8)], Vec::new());
        for (i, x) in floats(input).enumerate() {
            signs[i / 8] |= u8::from(x.is_sign_negative()) << (i % 8);
            let y = self.log(x).unwrap_or_else(|| {
                outliers.push((x, i as u32));
                -126.0
            });
            logs.extend(y.to_le_bytes());
        }
        // The order in the ports is arbitrary: never the one of the elements.
        outliers.reverse();
        let capacity = capacity(self.cap, n);
        if outliers.len() > capacity {
            return Err(format!("{} outliers, but there is room for {capacity}", outliers.len()));
        }
        let mut values: Vec<u8> = outliers.iter().flat_map(|o| o.0.to_le_bytes()).collect();
        let mut places: Vec<u8> = outliers.iter().flat_map(|o| o.1.to_le_bytes()).collect();
        for (port, bytes) in [(2, &mut values), (3, &mut places)] {
            if branched[port] {
                bytes.resize(4 * capacity, 0);
            }
        }
        let config = Record::default()
            .f32(self.bound)
            .f32(self.threshold)
            .u32(n as u32)
            .u32(outliers.len() as u32)
            .u8(Dtype::F32.code())
            .zeros(3);
        let [values, places] = [values, places].map(|bytes| Port { bytes, allocated: 4 * capacity });
        Ok(Encoded { config: config.0, ports: vec![logs.into(), signs.into(), values, places] })
    }

    fn inverse<'a>(&self, _: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let written: Vec<&[u8]> = encoded.ports.iter().map(|p| &p.bytes[..]).collect();
        let ports = ports.unwrap_or(&written);
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| encoded.config[at + i])) as usize;
        let (n, outliers) = (number(8), number(12));
        let mut out: Vec<f32> = floats(ports[0]).take(n).map(exp2).collect();
        if out.len() < n {
            return Err(format!("{} logarithms come back of {n}", out.len()));
        }
        for (i, own) in out.iter_mut().enumerate() {
            if ports[1][i / 8] >> (i % 8) & 1 != 0 {
                *own = -*own;
            }
        }
        for (value, place) in floats(ports[2]).zip(ports[3].as_chunks::<4>().0).take(outliers) {
            out[u32::from_le_bytes(*place) as usize] = value;
        }
        Ok(Cow::Owned(out.into_iter().flat_map(f32::to_le_bytes).collect()))
    }
}
