//! Difference (section 5.4): each element minus the one before, chunk by chunk.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Encoded, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load, negabinary, signed, store, unnegabinary, unzigzag, zigzag};
use crate::spec::Params;

/// Elements that the float sums take at a time, and those of one segment of them.
const TILE: usize = 512;
const SEGMENT: usize = 16;

#[derive(Debug)]
pub(crate) struct Difference {
    input: Dtype,
    output: Dtype,
    chunk: usize,
    config: usize,
    /// Whether fused pairs are zigzag codes instead of negabinary ones.
    zigzag: bool,
}

impl Difference {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let input = p.dtype("in", if input == Dtype::Opaque { Dtype::U8 } else { input })?;
        let plain = !matches!(input, Dtype::I8 | Dtype::I16);
        let zigzag = p.flag("zigzag")?;
        let stage = Self {
            input,
            output: p.dtype("out", if plain { input } else { input.unsigned() })?,
            chunk: p.take("chunk", 0)?,
            config: p.one_of("config", if zigzag { &[7] } else { &[6, 1, 0, 7] })?,
            zigzag,
        };
        let exists = match input {
            Dtype::U64 | Dtype::Opaque => false,
            Dtype::I8 | Dtype::I16 => stage.output == input.unsigned(),
            Dtype::I32 | Dtype::I64 => stage.output == input || stage.output == input.unsigned(),
            _ => stage.output == input,
        };
        if !exists {
            return Err(format!("there is no ({}, {})", input.name(), stage.output.name()));
        }
        if stage.config == 7 && stage.output == input {
            return Err("config=7 and zigzag=1 need an unsigned out".into());
        }
        let old = stage.config < 6;
        if old && (stage.chunk != 0 || stage.output != input) || stage.config == 0 && input != Dtype::F32 {
            return Err("config=1 knows neither chunk nor out, config=0 only f32".into());
        }
        Ok(stage)
    }

    /// The stored form of a difference.
    fn coded(&self, d: u64) -> u64 {
        let size = self.input.size();
        match (self.output == self.input, self.zigzag) {
            (true, _) => d,
            (_, true) => zigzag(signed(d, size)),
            _ => negabinary(d, size),
        }
    }

    fn decoded(&self, code: u64) -> u64 {
        match (self.output == self.input, self.zigzag) {
            (true, _) => code,
            (_, true) => unzigzag(code) as u64,
            _ => unnegabinary(code, self.input.size()),
        }
    }

    /// Bytes of a chunk, whole elements; all of `len` where there are no chunks.
    fn step(&self, len: usize) -> usize {
        let size = self.input.size();
        match self.chunk / size {
            0 => len.max(1),
            elements => elements * size,
        }
    }

    fn forward(&self, chunk: &[u8], out: &mut [u8]) {
        let size = self.input.size();
        let mut before = vec![0; size];
        for (slot, element) in out.chunks_exact_mut(size).zip(chunk.chunks_exact(size)) {
            if self.input.is_float() {
                let real = Real::of(self.input);
                real.store(slot, real.sub(real.load(element), real.load(&before)));
            } else {
                let d = load(element, size).wrapping_sub(load(&before, size));
                store(slot, size, self.coded(d));
            }
            before.copy_from_slice(element);
        }
        // The first element stays as it is, bit by bit (a -0.0 too).
        if let (Some(slot), Some(element), true) = (out.get_mut(..size), chunk.get(..size), self.input.is_float()) {
            slot.copy_from_slice(element);
        }
    }

    fn backward(&self, chunk: &[u8], out: &mut [u8]) {
        if self.input.is_float() {
            return float_sums(Real::of(self.input), chunk, out);
        }
        let size = self.input.size();
        let mut sum = 0_u64;
        for (slot, element) in out.chunks_exact_mut(size).zip(chunk.chunks_exact(size)) {
            sum = sum.wrapping_add(self.decoded(load(element, size)));
            store(slot, size, sum);
        }
    }
}

/// Inclusive sums over a chunk in the order of the reference.
fn float_sums(real: Real, chunk: &[u8], out: &mut [u8]) {
    let size = real.size();
    let mut carry = 0.0;
    for (out, chunk) in out.chunks_mut(TILE * size).zip(chunk.chunks(TILE * size)) {
        let mut x = [0.0; TILE];
        for (x, element) in x.iter_mut().zip(chunk.chunks_exact(size)) {
            *x = real.load(element);
        }
        let mut sums: [f64; TILE / SEGMENT] = std::array::from_fn(|j| {
            let segment = &x[j * SEGMENT..][..SEGMENT];
            segment[1..].iter().fold(segment[0], |sum, &v| real.add(sum, v))
        });
        real.kogge_stone(&mut sums);
        for (j, segment) in x.as_chunks_mut::<SEGMENT>().0.iter_mut().enumerate() {
            if j > 0 {
                segment[0] = real.add(sums[j - 1], segment[0]);
            }
            for k in 1..SEGMENT {
                segment[k] = real.add(segment[k - 1], segment[k]);
            }
        }
        for (slot, &v) in out.chunks_exact_mut(size).zip(&x) {
            real.store(slot, real.add(v, carry));
        }
        carry = real.add(carry, sums[sums.len() - 1]);
    }
}

impl Stage for Difference {
    fn kind(&self) -> u16 {
        2
    }

    fn name(&self) -> &'static str {
        "difference"
    }

    fn output(&self) -> Dtype {
        self.output
    }

    fn alignment(&self) -> usize {
        self.chunk.max(1)
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let step = self.step(input.len());
        let mut out = vec![0; input.len()];
        out.par_chunks_mut(step).zip(input.par_chunks(step)).for_each(|(out, chunk)| self.forward(chunk, out));
        let record = Record::default();
        let config = match self.config {
            7 => record.u8(self.input.code()).u8(self.output.code()).u32(self.chunk as u32).u8(u8::from(self.zigzag)),
            6 => record.u8(self.input.code()).u8(self.output.code()).u32(self.chunk as u32),
            1 => record.u8(self.input.code()),
            _ => record,
        };
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, _: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let stream = ports.map_or(&encoded.ports[0].bytes[..], |p| p[0]);
        let step = self.step(stream.len());
        let mut out = vec![0; stream.len()];
        out.par_chunks_mut(step).zip(stream.par_chunks(step)).for_each(|(out, chunk)| self.backward(chunk, out));
        Ok(Cow::Owned(out))
    }
}
