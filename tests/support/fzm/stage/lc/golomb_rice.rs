//! `GolombRice` (section 6 of the LC stages): a number in unary and k bits, in 16 intervals per chunk.

use super::body::Bits;
use super::{Chunk, chunks};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, signed, zigzag};
use crate::spec::Params;
use crate::stage::{Encoded, Stage};

const CHUNK: usize = 16384;

#[derive(Debug)]
pub(crate) struct GolombRice {
    dtype: Dtype,
    config: usize,
}

impl GolombRice {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let default = if input.size() == 2 { Dtype::I16 } else { Dtype::I32 };
        let stage = Self { dtype: p.dtype("t", default)?, config: p.one_of("config", &[9, 5])? };
        if matches!(stage.dtype, Dtype::I16 | Dtype::I32) {
            Ok(stage)
        } else {
            Err(format!("t={}: must be i16 or i32", stage.dtype.name()))
        }
    }
}

/// The bits of `u` with parameter `k`.
fn cost(u: u64, k: u32, width: u32) -> u64 {
    if u >> k < 24 { (u >> k) + 1 + u64::from(k) } else { 24 + u64::from(width) }
}

fn encode(chunk: &[u8], size: usize) -> Chunk {
    let width = 8 * size as u32;
    let whole = &chunk[..chunk.len() / size * size];
    let mask = u64::MAX >> (64 - width);
    let codes: Vec<u64> = whole.chunks_exact(size).map(|x| zigzag(signed(load(x, size), size)) & mask).collect();
    let total = |k: u32| codes.iter().map(|&u| cost(u, k, width)).sum::<u64>();
    let ks = 0..if size == 2 { 16 } else { 25 };
    let k = ks.min_by_key(|&k| total(k)).unwrap_or(0);
    let (mut starts, mut payload) = (Vec::new(), Vec::new());
    let each = 1024 / size;
    for interval in 0..16 {
        starts.push(payload.len() as u32);
        let mut bits = Bits::default();
        for &u in codes.iter().skip(interval * each).take(each) {
            let q = (u >> k).min(24) as u32;
            bits.push((1 << q) - 1, q);
            if q < 24 {
                bits.push(0, 1);
                bits.push(u, k);
            } else {
                bits.push(u, width);
            }
        }
        payload.extend(bits.bytes());
    }
    if 68 + payload.len() >= whole.len() {
        return (whole.to_vec(), true);
    }
    let mut out = Record::default().u32(k).0;
    out.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
    out.extend(payload);
    (out, false)
}

impl Stage for GolombRice {
    fn kind(&self) -> u16 {
        42
    }

    fn name(&self) -> &'static str {
        "golomb_rice"
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
        let (size, ty) = if self.dtype == Dtype::I16 { (2, 5) } else { (4, 6) };
        if !input.len().is_multiple_of(size) {
            return Err("not whole elements".into());
        }
        let mut config = Record::default().u32(CHUNK as u32).u8(ty).u32(input.len() as u32).0;
        config.truncate(self.config);
        Ok(Encoded::one(config, chunks(input, CHUNK, |chunk| encode(chunk, size))))
    }
}
