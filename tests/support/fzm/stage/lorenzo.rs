//! Integer Lorenzo (section 5.3): differences along every axis, wrapping.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, store, zeros_from};
use crate::spec::{Dims, Params};

/// Elements after which rank 1 starts anew.
const BLOCK: usize = 256;

#[derive(Debug)]
pub(crate) struct Lorenzo {
    dtype: Dtype,
    dims: Dims,
}

impl Lorenzo {
    pub(crate) fn new(p: &mut Params, input: Dtype, shape: &[u32]) -> Result<Self> {
        let dtype = p.dtype("t", input.signed())?;
        if !matches!(dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64) {
            return Err(format!("works on signed integers, not on {}", dtype.name()));
        }
        Ok(Self { dtype, dims: p.dims(shape)? })
    }
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

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
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
        let [x, y, z] = self.dims.xyz;
        let config = Record::default().u8(self.dtype.code()).u8(self.dims.rank).zeros(2).u32(x).u32(y).u32(z);
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        let (_, used) = self.dims.over(input.len() / self.dtype.size())?;
        lossless(zeros_from(input, used * self.dtype.size()), ports)
    }
}
