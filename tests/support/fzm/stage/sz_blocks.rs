//! `SZx` and `SZp`: blocks of integers of a fixed width, in units of twice the bound.

use std::borrow::Cow;

use super::{Encoded, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, unzigzag, whole, zigzag};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct SzBlocks {
    /// `SZp`: differences from the element before, and no reference.
    differences: bool,
    dtype: Dtype,
    mode: u8,
    bound: f64,
    block: usize,
}

impl SzBlocks {
    pub(crate) fn new(name: &str, p: &mut Params, input: Dtype) -> Result<Self> {
        let (mode, bound, block) = (p.mode()?, p.take("eb", 1e-3)?, p.take("block", 0)?);
        if !input.is_float() || mode == 1 || bound <= 0.0 {
            return Err("works on floats, with a positive bound, absolute or to the range".into());
        }
        Ok(Self { differences: name == "szp", dtype: input, mode, bound, block })
    }

    fn block(&self) -> usize {
        if self.block == 0 { 128 } else { self.block }
    }

    fn absolute(&self, input: &[u8]) -> (f64, f64) {
        let range = if self.mode == 0 { 0.0 } else { Real::of(self.dtype).base(input, true) };
        (if range == 0.0 { self.bound } else { self.bound * range }, range)
    }
}

/// Zigzag codes, and the bits of the largest.
fn codes(numbers: impl Iterator<Item = i64>) -> (Vec<u64>, u8) {
    let codes: Vec<u64> = numbers.map(zigzag).collect();
    let most = codes.iter().copied().max().unwrap_or(0);
    (codes, (64 - most.leading_zeros()) as u8)
}

fn pack(codes: &[u64], width: u8, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + (codes.len() * usize::from(width)).div_ceil(8), 0);
    for (i, code) in codes.iter().enumerate() {
        for k in 0..usize::from(width) {
            let bit = i * usize::from(width) + k;
            out[start + bit / 8] |= ((code >> k & 1) as u8) << (bit % 8);
        }
    }
}

fn unpack(bytes: &[u8], width: u8, i: usize) -> u64 {
    let bit = |k: usize| u64::from(bytes[(i * usize::from(width) + k) / 8] >> ((i * usize::from(width) + k) % 8) & 1);
    (0..usize::from(width)).fold(0, |code, k| code | bit(k) << k)
}

impl Stage for SzBlocks {
    fn kind(&self) -> u16 {
        if self.differences { 37 } else { 36 }
    }

    fn name(&self) -> &'static str {
        if self.differences { "szp" } else { "szx" }
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let real = Real::of(self.dtype);
        let input = whole(input, real.size());
        let (bound, range) = self.absolute(input);
        if !(bound.is_finite() && bound > 0.0) {
            return Err(format!("a bound of {bound}"));
        }
        let (mut table, mut payload) = (Vec::new(), Vec::new());
        for block in input.chunks(self.block() * real.size()) {
            let values: Vec<f64> = block.chunks_exact(real.size()).map(|x| real.load(x)).collect();
            let number = |x: f64| (x / (2.0 * bound)).round() as i64;
            if self.differences {
                let mut before = 0_i64;
                let (codes, width) = codes(values.iter().map(|&x| {
                    let own = number(x);
                    own.wrapping_sub(std::mem::replace(&mut before, own))
                }));
                table.push(width);
                pack(&codes, width, &mut payload);
                continue;
            }
            let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &x| (l.min(x), h.max(x)));
            let reference = real.round(0.5 * (low + high));
            let mut bytes = vec![0; real.size()];
            real.store(&mut bytes, reference);
            payload.extend(bytes);
            if high - low <= 2.0 * bound {
                table.extend([0, 0]);
                continue;
            }
            let (codes, width) = codes(values.iter().map(|&x| number(x - reference)));
            table.extend([1, width]);
            pack(&codes, width, &mut payload);
        }
        let config = Record::default()
            .u8(self.dtype.code())
            .u8(self.mode)
            .zeros(2)
            .u32(self.block as u32)
            .u64((input.len() / real.size()) as u64)
            .f64(bound)
            .f64(range);
        Ok(Encoded::one(config.0, [table, payload].concat()))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let real = Real::of(self.dtype);
        let (bound, _) = self.absolute(whole(input, real.size()));
        let stream = ports.map_or(&encoded.ports[0].bytes[..], |p| p[0]);
        let mut out = vec![0; input.len() / real.size() * real.size()];
        let entry = if self.differences { 1 } else { 2 };
        let mut at = entry * (out.len() / real.size()).div_ceil(self.block());
        for (index, block) in out.chunks_mut(self.block() * real.size()).enumerate() {
            let n = block.len() / real.size();
            let entry = &stream[entry * index..][..entry];
            let width = entry[entry.len() - 1];
            let (mut reference, mut sum) = (0.0, 0_i64);
            if !self.differences {
                reference = real.load(&stream[at..]);
                at += real.size();
            }
            let codes = &stream[at..];
            for (i, own) in block.chunks_exact_mut(real.size()).enumerate() {
                if entry == [0, 0] && !self.differences {
                    real.store(own, reference);
                } else if self.differences {
                    sum = sum.wrapping_add(unzigzag(unpack(codes, width, i)));
                    real.store(own, 2.0 * sum as f64 * bound);
                } else {
                    let q = unzigzag(unpack(codes, width, i)) as f64;
                    real.store(own, (2.0 * q).mul_add(bound, reference));
                }
            }
            if entry != [0, 0] || self.differences {
                at += (n * usize::from(width)).div_ceil(8);
            }
        }
        Ok(Cow::Owned(out))
    }
}
