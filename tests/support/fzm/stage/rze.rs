//! RZE (section 5.9): zero bytes left out, and their bitmaps thinned three times.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::Record;

const CHUNK: usize = 16384;

#[derive(Debug)]
pub(crate) struct Rze;

/// A bitmap, lowest bit first: one bit for every item that `keep` says yes to; and the kept items.
fn sift(bytes: &[u8], keep: impl Fn(usize, u8) -> bool) -> (Vec<u8>, Vec<u8>) {
    let mut map = vec![0; bytes.len().div_ceil(8)];
    let mut kept = Vec::new();
    for (i, &byte) in bytes.iter().enumerate() {
        if keep(i, byte) {
            map[i / 8] |= 1 << (i % 8);
            kept.push(byte);
        }
    }
    (map, kept)
}

/// Marks and keeps the bytes that differ from the one before; the one before the first is 0.
fn changes(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    sift(bytes, |i, byte| byte != if i == 0 { 0 } else { bytes[i - 1] })
}

/// The stored form of a chunk, and whether it is raw.
fn encode(chunk: &[u8]) -> (Vec<u8>, bool) {
    let (b1, data) = sift(chunk, |_, byte| byte != 0);
    if data.is_empty() {
        return (Vec::new(), false);
    }
    let (b2, k1) = changes(&b1);
    let (b3, k2) = changes(&b2);
    let (mut b4, k3) = changes(&b3);
    b4.resize(4, 0);
    let body = [data, k1, k2, k3, b4, (chunk.len() as u16).to_le_bytes().to_vec()].concat();
    if body.len() > CHUNK { (chunk.to_vec(), true) } else { (body, false) }
}

impl Stage for Rze {
    fn kind(&self) -> u16 {
        18
    }

    fn name(&self) -> &'static str {
        "rze"
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn alignment(&self) -> usize {
        CHUNK
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let config = Record::default().u32(CHUNK as u32).u8(4).u32(input.len() as u32).0;
        if input.is_empty() {
            return Ok(Encoded::one(config, Vec::new()));
        }
        let chunks: Vec<(Vec<u8>, bool)> = input.par_chunks(CHUNK).map(encode).collect();
        let mut out = Record::default().u32(input.len() as u32).u32(chunks.len() as u32);
        for (body, raw) in &chunks {
            out = out.u32(body.len() as u32 | u32::from(*raw) << 31);
        }
        let mut out = out.0;
        out.reserve(chunks.iter().map(|(body, _)| body.len()).sum::<usize>() + 4);
        for (body, _) in &chunks {
            out.extend(body);
        }
        out.resize(out.len().next_multiple_of(4), 0);
        Ok(Encoded::one(config, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(input, ports)
    }
}
