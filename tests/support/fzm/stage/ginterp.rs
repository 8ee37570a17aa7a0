//! `GInterp` (type 22): splines between the values of ever finer grids, and codes for what they miss.

use std::borrow::Cow;

use super::outliers::capacity;
use super::spline::Splines;
use super::{Encoded, Port, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load, store, whole};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct GInterp {
    input: Dtype,
    code: Dtype,
    bound: f64,
    radius: u32,
    cap: f64,
    alpha: f64,
    beta: f64,
    splines: Splines,
    /// The configuration with a bound of 32 bits.
    narrow: bool,
}

/// Four digits, the finest level first; any but 0 means yes.
fn digits(p: &mut Params, key: &str, default: &str) -> Result<[bool; 4]> {
    let text: String = p.take(key, default.to_owned())?;
    let digits: Vec<bool> = text.chars().map(|c| c != '0').collect();
    digits.try_into().map_err(|_| format!("{key}={text}: must be four digits"))
}

impl GInterp {
    pub(crate) fn new(p: &mut Params, input: Dtype, shape: &[u32]) -> Result<Self> {
        let code = p.dtype("code", Dtype::U16)?;
        let radius = p.take("radius", if code == Dtype::U8 { 100 } else { 512 })?;
        let dims = p.dims(shape)?.xyz.map(|n| n as usize);
        let real = Real::of(input);
        let splines = Splines {
            dims,
            md: digits(p, "md", "1100")?,
            natural: digits(p, "natural", "0000")?,
            reverse: digits(p, "reverse", "0000")?,
        };
        let stage = Self {
            input,
            code,
            bound: real.round(p.take("eb", 1e-2)?),
            radius,
            cap: p.take("cap", 0.5)?,
            alpha: p.take("alpha", 1.75)?,
            beta: p.take("beta", 4.0)?,
            splines,
            narrow: p.flag("narrow")?,
        };
        if !input.is_float()
            || !matches!(code, Dtype::U8 | Dtype::U16 | Dtype::U32)
            || (stage.narrow && input != Dtype::F32)
        {
            return Err(format!("there is no ({}, {})", input.name(), code.name()));
        }
        if dims.contains(&0) || dims[1] < 2 {
            return Err(format!("{dims:?} is not an array of two or three dimensions"));
        }
        Ok(stage)
    }

    fn count(&self) -> usize {
        self.splines.dims.iter().product()
    }

    /// The value of one step of a code, per level.
    fn widths(&self, real: Real) -> [f64; 4] {
        let top = real.round(2.0 * self.bound);
        [0, 1, 2, 3].map(|level| {
            let width = (0..level).fold(top, |width, _| real.round(width / self.alpha));
            if width < top / self.beta { real.round(top / self.beta) } else { width }
        })
    }

    /// The place of the code of every element, and the number of anchors.
    fn order(&self) -> (Vec<usize>, usize) {
        let [nx, ny, nz] = self.splines.dims;
        let (mut places, mut next, mut anchors) = (vec![0; self.count()], 0, 0);
        for level in (0..=4).rev() {
            for (at, place) in places.iter_mut().enumerate() {
                let [x, y, z] = [at % nx, at / nx % ny, at / nx / ny];
                let finest = [x, y, z].map(|n| n.trailing_zeros().min(4)).into_iter().min();
                if finest == Some(level) {
                    *place = next;
                    next += 1;
                }
            }
            if level == 4 {
                anchors = next;
            }
        }
        debug_assert_eq!(nx * ny * nz, next);
        (places, anchors)
    }

    fn anchors(&self) -> impl Iterator<Item = usize> {
        let [nx, ny, nz] = self.splines.dims;
        let each = |n: usize| (0..n).step_by(16);
        each(nz).flat_map(move |z| each(ny).flat_map(move |y| each(nx).map(move |x| x + nx * (y + ny * z))))
    }

    fn config(&self, codes: usize, outliers: usize) -> Vec<u8> {
        let dims = self.splines.dims;
        let record = Record::default();
        let record = if self.narrow { record.f32(self.bound) } else { record.u64(self.bound.to_bits()) };
        let mut record = record
            .u32(self.radius)
            .u32(codes as u32)
            .u32(outliers as u32)
            .u8(self.input.code())
            .u8(self.code.code())
            .u8(if dims[2] == 1 { 2 } else { 3 })
            .u8(0);
        for n in dims.into_iter().chain(dims.map(|n| n.div_ceil(16))) {
            record = record.u32(n as u32);
        }
        record = record.f32(self.bound).f32(0.0);
        if self.narrow {
            record = record.u32(0xA5A5_A5A5);
        }
        record = record.u64(self.alpha.to_bits()).u64(self.beta.to_bits());
        // Any byte but 0 is true.
        for (flags, on) in [(self.splines.md, 1), (self.splines.natural, 1), (self.splines.reverse, 2)] {
            for flag in flags {
                record = record.u8(if flag { on } else { 0 });
            }
            record = record.zeros(2);
        }
        let mut config = record.zeros(9).0;
        config.resize(104, 0xA5);
        config
    }
}

impl Stage for GInterp {
    fn kind(&self) -> u16 {
        22
    }

    fn name(&self) -> &'static str {
        "ginterp"
    }

    fn output(&self) -> Dtype {
        self.code
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        vec![("codes", self.code), ("anchor", self.input), ("outlier_vals", self.input), ("outlier_idxs", Dtype::U32)]
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let (real, size) = (Real::of(self.input), self.input.size());
        let input: Vec<f64> = whole(input, size).chunks_exact(size).map(|e| real.load(e)).collect();
        if input.len() < self.count() {
            return Err(format!("the shape has {} elements, the data {}", self.count(), input.len()));
        }
        let (widths, (places, _)) = (self.widths(real), self.order());
        let radius = f64::from(self.radius);
        // The codes of the anchors are there, and mean nothing.
        let mut codes = vec![self.radius as u64; input.len()];
        let mut outliers = Vec::new();
        let mut values = vec![0.0; self.count()];
        let mut anchor = Vec::new();
        for at in self.anchors() {
            values[at] = input[at];
            let mut bytes = [0; 8];
            real.store(&mut bytes, input[at]);
            anchor.extend(&bytes[..size]);
        }
        self.splines.walk(real, &mut values, |at, level, guess| {
            let off = real.sub(input[at], guess);
            let steps = (off.abs() / widths[level] + 0.5).trunc();
            let q = real.round(if off < 0.0 { -steps } else { steps }) + radius;
            let q = if q.is_nan() { radius } else { real.round(q) };
            let is_code = q >= 0.0 && q < 2.0 * radius;
            codes[places[at]] = if is_code { q as u64 } else { 0 };
            if !is_code {
                outliers.push((q, at as u32));
            }
            real.fma(real.sub(q, real.round(radius)), widths[level], guess)
        });
        // The order in the ports is arbitrary: never the one of the elements.
        outliers.reverse();
        let capacity = capacity(self.cap, input.len());
        outliers.truncate(capacity);
        let kept = |port: usize| if branched[port] { capacity } else { outliers.len() };
        let (mut found, mut at) = (vec![0; kept(2) * size], vec![0; 4 * kept(3)]);
        for (i, (q, place)) in outliers.iter().enumerate() {
            real.store(&mut found[i * size..(i + 1) * size], *q);
            at[4 * i..4 * i + 4].copy_from_slice(&place.to_le_bytes());
        }
        let mut stored = vec![0; codes.len() * self.code.size()];
        for (slot, code) in stored.chunks_exact_mut(self.code.size()).zip(&codes) {
            store(slot, self.code.size(), *code);
        }
        let config = self.config(codes.len(), outliers.len());
        let port = |bytes, allocated| Port { bytes, allocated };
        let ports = vec![stored.into(), anchor.into(), port(found, capacity * size), port(at, 4 * capacity)];
        Ok(Encoded { config, ports })
    }

    fn inverse<'a>(&self, _: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let written: Vec<&[u8]> = encoded.ports.iter().map(|p| &p.bytes[..]).collect();
        let ports = ports.unwrap_or(&written);
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let (widths, (places, _)) = (self.widths(real), self.order());
        let mut steps: Vec<f64> =
            places.iter().map(|&place| real.round(load(&ports[0][place * code_size..], code_size) as f64)).collect();
        let count = load(&encoded.config[if self.narrow { 12 } else { 16 }..], 4) as usize;
        for (value, at) in ports[2].chunks_exact(size).zip(ports[3].as_chunks::<4>().0).take(count) {
            let own = &mut steps[u32::from_le_bytes(*at) as usize];
            *own = real.add(*own, real.load(value));
        }
        let mut values = vec![0.0; self.count()];
        for (at, value) in self.anchors().zip(ports[1].chunks_exact(size)) {
            values[at] = real.load(value);
        }
        let radius = real.round(f64::from(self.radius));
        self.splines
            .walk(real, &mut values, |at, level, guess| real.fma(real.sub(steps[at], radius), widths[level], guess));
        let mut out = vec![0; self.count() * size];
        out.chunks_exact_mut(size).zip(&values).for_each(|(slot, value)| real.store(slot, *value));
        Ok(Cow::Owned(out))
    }
}
