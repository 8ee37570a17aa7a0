//! Integer Lorenzo (section 5.3): differences along every axis, wrapping; with `block`, of first or second order in
//! blocks, with or without their means.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, signed, store, zeros_from};
use crate::spec::{Dims, Params};

/// Elements after which rank 1 starts anew.
const BLOCK: usize = 256;

#[derive(Debug)]
pub(crate) struct Lorenzo {
    dtype: Dtype,
    dims: Dims,
    /// Elements per block; 0 for none.
    block: usize,
    order: usize,
    centering: bool,
    config: usize,
}

impl Lorenzo {
    pub(crate) fn new(p: &mut Params, input: Dtype, shape: &[u32]) -> Result<Self> {
        let dtype = p.dtype("t", input.signed())?;
        if !matches!(dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64) {
            return Err(format!("works on signed integers, not on {}", dtype.name()));
        }
        let (block, order, centering) = (p.take("block", 0)?, p.take("order", 1)?, p.flag("centering")?);
        let config = p.one_of("config", if block > 0 { &[20] } else { &[16, 20] })?;
        if block > 1024 || order > 2 || block == 0 && (order > 1 || centering) {
            return Err(format!("block={block},order={order}: at most 1024 and 2, and order and means need blocks"));
        }
        Ok(Self { dtype, dims: p.dims(shape)?, block, order, centering, config })
    }

    /// The stored form of the elements in `block`, and their mean.
    fn encode_block(&self, block: &[u8], out: &mut [u8]) -> u64 {
        let size = self.dtype.size();
        let numbers: Vec<i64> = block.chunks_exact(size).map(|e| signed(load(e, size), size)).collect();
        let mean = if self.centering { mean(&numbers) } else { 0 };
        let at = |i: usize, back: usize| i.checked_sub(back).map_or(0, |i| numbers[i].wrapping_sub(mean));
        for (i, slot) in out.chunks_exact_mut(size).enumerate() {
            let mut e = at(i, 0).wrapping_sub(at(i, 1));
            if self.order == 2 {
                e = e.wrapping_sub(at(i, 1)).wrapping_add(at(i, 2));
            }
            store(slot, size, e as u64);
        }
        mean as u64
    }
}

/// The mean, rounded half away from zero.
fn mean(numbers: &[i64]) -> i64 {
    let sum = i128::from(numbers.iter().fold(0_i64, |sum, &n| sum.wrapping_add(n)));
    let count = numbers.len() as i128;
    ((sum + sum.signum() * (count / 2)) / count) as i64
}

impl Stage for Lorenzo {
    fn kind(&self) -> u16 {
        12
    }

    fn name(&self) -> &'static str {
        "lorenzo"
    }

    fn output(&self) -> Dtype {
        self.dtype
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        [("output", self.dtype), ("means", self.dtype)][..if self.centering { 2 } else { 1 }].to_vec()
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let [x, y, z] = self.dims.xyz;
        let mut config = Record::default()
            .u8(self.dtype.code())
            .u8(self.dims.rank)
            .u8(u8::from(self.centering))
            .u8(if self.order == 2 { 2 } else { 0 })
            .u32(x)
            .u32(y)
            .u32(z);
        if self.config == 20 {
            config = config.u32(self.block as u32);
        }
        if self.block > 0 {
            let mut out = input.to_vec();
            let mut means = vec![0; (input.len() / size).div_ceil(self.block) * size];
            let bytes = self.block * size;
            let blocks = input.chunks(bytes).zip(out.chunks_mut(bytes));
            for ((block, out), slot) in blocks.zip(means.chunks_exact_mut(size)) {
                store(slot, size, self.encode_block(block, out));
            }
            let mut encoded = Encoded::one(config.0, out);
            if self.centering {
                encoded.ports.push(means.into());
            }
            return Ok(encoded);
        }
        let (xyz, used) = self.dims.over(input.len() / size)?;
        let mut out = input.to_vec();
        let mut differences = |stride: usize, starts: &dyn Fn(usize) -> bool| {
            for i in (0..used).rev().filter(|&i| !starts(i)) {
                let before = load(&out[(i - stride) * size..], size);
                let here = load(&out[i * size..], size);
                store(&mut out[i * size..], size, here.wrapping_sub(before));
            }
        };
        let [x, y, z] = xyz;
        if y == 1 && z == 1 {
            differences(1, &|i| i % BLOCK == 0);
        } else {
            differences(1, &|i| i % x == 0);
            differences(x, &|i| i / x % y == 0);
            differences(x * y, &|i| i / x / y == 0);
        }
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        let n = input.len() / self.dtype.size();
        let used = if self.block > 0 { n } else { self.dims.over(n)?.1 };
        lossless(zeros_from(input, used * self.dtype.size()), ports)
    }
}
