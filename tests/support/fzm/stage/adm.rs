//! ADM (type 19): distances from the mean of a block.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, store, whole};
use crate::spec::Params;

/// Elements of a block, and of a lane.
const BLOCK: usize = 512;
const RUN: usize = 16;
const LANES: usize = BLOCK / RUN;
/// The distance that one zero bit stands for.
const STEP: u64 = 126;

#[derive(Debug)]
pub(crate) struct Adm {
    dtype: Dtype,
}

impl Adm {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let default = if input.size() == 2 { Dtype::U16 } else { Dtype::U32 };
        let dtype = p.dtype("t", default)?;
        if matches!(dtype, Dtype::U16 | Dtype::U32) {
            Ok(Self { dtype })
        } else {
            Err(format!("does not know {}", dtype.name()))
        }
    }

    /// The code of an element and its zeros.
    fn code(value: u64, center: u64) -> (u8, usize) {
        let distance = value.abs_diff(center);
        if distance == 0 {
            return (1, 0);
        }
        let zeros = (distance - 1) / STEP;
        let code = 2 * (distance - STEP * zeros) + u64::from(value < center);
        (code as u8, zeros as usize)
    }

    /// The bits of a lane, filled up to whole bytes.
    fn lane(&self, zeros: &[usize]) -> Result<Vec<u8>> {
        let bits: usize = zeros.iter().map(|zeros| zeros + 1).sum();
        if bits > 16 * 8 * self.dtype.size() {
            return Err(format!("{bits} bits do not fit a lane"));
        }
        let mut lane = vec![0_u8; bits.div_ceil(8)];
        let mut at = 0;
        let one = |lane: &mut Vec<u8>, at: usize| lane[at / 8] |= 0x80 >> (at % 8);
        for zeros in zeros {
            one(&mut lane, at);
            at += zeros + 1;
        }
        (bits..8 * lane.len()).for_each(|at| one(&mut lane, at));
        Ok(lane)
    }
}

impl Stage for Adm {
    fn kind(&self) -> u16 {
        19
    }

    fn name(&self) -> &'static str {
        "adm"
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let values: Vec<u64> = whole(input, size).chunks_exact(size).map(|e| load(e, size)).collect();
        let (mut offsets, mut centers, mut codes, mut signals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for block in values.chunks(BLOCK) {
            let sum = block.iter().fold(0_u32, |sum, &value| sum.wrapping_add(value as u32));
            let center = u64::from(sum / block.len() as u32);
            let mut bytes = [0; 8];
            store(&mut bytes, size, center);
            centers.extend(&bytes[..size]);
            offsets.extend((signals.len() as u32 / LANES as u32).to_le_bytes());
            let mut zeros = Vec::new();
            for &value in block {
                let (code, own) = Self::code(value, center);
                codes.push(code);
                zeros.push(own);
            }
            let mut lanes = zeros.chunks(RUN).map(|zeros| self.lane(zeros)).collect::<Result<Vec<_>>>()?;
            lanes.resize(LANES, Vec::new());
            let length = lanes.iter().map(Vec::len).max().unwrap_or(0);
            for mut lane in lanes {
                if lane.len() < length {
                    lane.push(0xFF);
                }
                lane.resize(length, 0);
                signals.extend(lane);
            }
        }
        let flags = vec![0xFF; values.len().div_ceil(BLOCK).div_ceil(8)];
        let config = Record::default().u8(u8::from(size == 4)).zeros(3).u64(values.len() as u64);
        Ok(Encoded::one(config.0, [offsets, centers, flags, codes, signals].concat()))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(whole(input, self.dtype.size()), ports)
    }
}
