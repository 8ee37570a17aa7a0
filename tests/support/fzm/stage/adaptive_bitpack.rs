//! `AdaptiveBitpack` (type 24): signs and bit planes of magnitudes, with a number of planes for each block.

use std::borrow::Cow;

use super::{Encoded, Port, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, signed, whole};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct AdaptiveBitpack {
    dtype: Dtype,
    /// Elements of a block; 0 in the configuration for 32.
    block: usize,
    selection: bool,
}

impl AdaptiveBitpack {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let dtype = p.dtype("t", input.signed())?;
        if !matches!(dtype, Dtype::I16 | Dtype::I32) {
            return Err(format!("works on i16 and i32, not on {}", dtype.name()));
        }
        let block = p.take("block", 32)?;
        if block > 1024 {
            return Err(format!("block={block}: at most 1024"));
        }
        Ok(Self { dtype, block, selection: p.flag("select")? })
    }
}

/// The planes that `magnitudes` need.
fn rate(magnitudes: &[u64]) -> usize {
    magnitudes.iter().fold(0, |bits, m| bits.max(64 - m.leading_zeros() as usize))
}

/// Bit `bit` of every number, first element in the lowest bit, in `word` bytes.
fn plane(numbers: impl Iterator<Item = u64>, bit: usize, word: usize) -> Vec<u8> {
    let mut plane = vec![0; word];
    numbers.enumerate().for_each(|(i, n)| plane[i / 8] |= ((n >> bit & 1) as u8) << (i % 8));
    plane
}

/// Bytes of a block without a first element apart.
pub(super) fn plain_cost(word: usize, magnitudes: &[u64]) -> usize {
    match rate(magnitudes) {
        0 => 0,
        rate => word * (rate + 1),
    }
}

/// Bytes of a block whose first element is apart, and bytes of that element.
fn apart_cost(word: usize, magnitudes: &[u64]) -> (usize, usize) {
    let head = rate(&magnitudes[..1]).div_ceil(8);
    (head + word * (rate(&magnitudes[1..]) + 1), head)
}

/// Bytes of a block of 32, with or without the choice to store its first element apart.
pub(super) fn cost(magnitudes: &[u64], selection: bool) -> usize {
    let plain = plain_cost(4, magnitudes);
    if selection { plain.min(apart_cost(4, magnitudes).0) } else { plain }
}

impl Stage for AdaptiveBitpack {
    fn kind(&self) -> u16 {
        24
    }

    fn name(&self) -> &'static str {
        "adaptive_bitpack"
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let (size, block) = (self.dtype.size(), if self.block == 0 { 32 } else { self.block });
        let values: Vec<i64> = whole(input, size).chunks_exact(size).map(|e| signed(load(e, size), size)).collect();
        let word = block.div_ceil(8);
        let (mut metadata, mut payload) = (Vec::new(), Vec::new());
        for values in values.chunks(block) {
            let mut magnitudes: Vec<u64> = values.iter().map(|v| v.unsigned_abs()).collect();
            let (apart, head) = apart_cost(word, &magnitudes);
            let is_apart = self.selection && plain_cost(word, &magnitudes) > apart;
            if is_apart {
                let first = std::mem::take(&mut magnitudes[0]);
                payload.extend(&first.to_le_bytes()[..head]);
            }
            let rate = rate(&magnitudes);
            metadata.push(rate as u8);
            if self.selection {
                metadata.push(if is_apart { 1 | (head as u8 - 1) << 1 } else { 0 });
            }
            if rate > 0 || is_apart {
                payload.extend(plane(values.iter().map(|v| u64::from(*v < 0)), 0, word));
                (0..rate).for_each(|bit| payload.extend(plane(magnitudes.iter().copied(), bit, word)));
            }
        }
        let config = Record::default().u8(self.dtype.code()).u8(u8::from(self.selection)).zeros(2);
        let config = config.u32(self.block as u32).u64(values.len() as u64);
        let mut bytes = [metadata, payload].concat();
        if branched[0] {
            // The capacity: every block with all planes.
            let most = values.len().div_ceil(block) * (2 + size + word * (8 * size + 1));
            bytes.resize(most.max(bytes.len()), 0xA5);
        }
        Ok(Encoded { config: config.0, ports: vec![Port::from(bytes)] })
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(whole(input, self.dtype.size()), ports)
    }
}
