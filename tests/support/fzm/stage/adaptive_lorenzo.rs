//! `AdaptiveLorenzo` (type 34): the cheapest of four predictors for each tile.

use std::borrow::Cow;

use super::adaptive_bitpack::cost;
use super::{Encoded, Port, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, signed, store, whole};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct AdaptiveLorenzo {
    dtype: Dtype,
    /// Blocks of 32 elements in a tile.
    blocks: usize,
    second_order: bool,
    centring: bool,
    /// Whether residuals are coded with a first element apart.
    selection: bool,
}

impl AdaptiveLorenzo {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let dtype = p.dtype("t", input.signed())?;
        let blocks = p.take("tile", 8)?;
        if !matches!(dtype, Dtype::I16 | Dtype::I32) || !(1..=32).contains(&blocks) {
            return Err(format!("tiles of {blocks} blocks of {}", dtype.name()));
        }
        let (second_order, centring) = (p.take("second", 1)? == 1, p.take("centre", 1)? == 1);
        Ok(Self { dtype, blocks, second_order, centring, selection: p.flag("select")? })
    }

    /// The mode of a tile, its residuals, and its mean.
    fn tile(&self, values: &[i64]) -> (u8, Vec<u64>, i64) {
        let size = self.dtype.size();
        let sum: i64 = values.iter().sum();
        let count = values.len() as i64;
        let mean = (2 * sum.abs() + count) / (2 * count) * sum.signum();
        let mut best: Option<(usize, u8, Vec<u64>)> = None;
        for mode in [0, 1, 2, 3] {
            if mode & 1 != 0 && !self.second_order || mode & 2 != 0 && !self.centring {
                continue;
            }
            let mut residuals: Vec<i64> = values.iter().map(|v| v - if mode & 2 != 0 { mean } else { 0 }).collect();
            for _ in 0..=(mode & 1) {
                (1..residuals.len()).rev().for_each(|i| residuals[i] -= residuals[i - 1]);
            }
            // They wrap at the width of an element.
            let magnitudes: Vec<u64> = residuals.iter().map(|v| signed(*v as u64, size).unsigned_abs()).collect();
            let bytes = magnitudes.chunks(32).map(|block| cost(block, self.selection)).sum::<usize>()
                + if mode & 2 != 0 { size } else { 0 };
            if best.as_ref().is_none_or(|(least, ..)| bytes < *least) {
                best = Some((bytes, mode, residuals.iter().map(|v| *v as u64).collect()));
            }
        }
        let (_, mode, residuals) = best.unwrap_or_default();
        (mode, residuals, mean)
    }
}

impl Stage for AdaptiveLorenzo {
    fn kind(&self) -> u16 {
        34
    }

    fn name(&self) -> &'static str {
        "adaptive_lorenzo"
    }

    fn output(&self) -> Dtype {
        self.dtype
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        vec![("output", self.dtype), ("modes", Dtype::U8), ("means", self.dtype)]
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let values: Vec<i64> = whole(input, size).chunks_exact(size).map(|e| signed(load(e, size), size)).collect();
        let (mut output, mut means) = (vec![0; values.len() * size], Vec::new());
        let tiles = values.len().div_ceil(32 * self.blocks);
        let mut modes = vec![0; tiles.div_ceil(4)];
        let places = output.chunks_mut(32 * self.blocks * size);
        for ((t, values), out) in values.chunks(32 * self.blocks).enumerate().zip(places) {
            let (mode, residuals, mean) = self.tile(values);
            modes[t / 4] |= mode << (2 * (t % 4));
            if mode & 2 != 0 {
                means.extend(&mean.to_le_bytes()[..size]);
            }
            out.chunks_mut(size).zip(residuals).for_each(|(out, residual)| store(out, size, residual));
        }
        if branched[2] {
            means.resize(tiles * size, 0xA5);
        }
        let config = Record::default().u8(self.dtype.code()).u8(32).u8(self.blocks as u8);
        let config = config.u8(u8::from(self.second_order)).u8(u8::from(self.centring)).zeros(3);
        let ports = [output, modes, means].map(Port::from).into();
        Ok(Encoded { config: config.u32(values.len() as u32).0, ports })
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(whole(input, self.dtype.size()), ports)
    }
}
