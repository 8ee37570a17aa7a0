//! `LorenzoQuant` (section 5.1): prediction from the neighbours in a tile, and quantization.

use std::borrow::Cow;

use rayon::prelude::*;

use super::outliers::{Outliers, all_fit, capacity};
use super::tile_sums::{sum_rank1, sum_rank2, sum_rank3};
use super::{Encoded, Port, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load, signed, store, unzigzag, whole, zigzag};
use crate::spec::{Dims, Params};

/// The delta coded where the array does not reach: a decoder must give 0 whatever it is.
const JUNK: f64 = 1.0;

#[derive(Debug)]
pub(crate) struct LorenzoQuant {
    input: Dtype,
    code: Dtype,
    bound: f64,
    mode: u8,
    radius: u32,
    cap: f64,
    zigzag: bool,
    dims: Dims,
    config: usize,
    kind: u16,
    /// Outputs with the codes and without the means: the fourth is the count.
    ports: usize,
    /// Whether the first element of a tile is coded as its distance from the tile's mean.
    centering: bool,
}

/// The array as the tiles divide it.
struct Tiling {
    /// Extents x, y, z.
    xyz: [usize; 3],
    /// Extents of a tile.
    tile: [usize; 3],
    /// Elements that are predicted; those behind them are padding.
    used: usize,
}

impl Tiling {
    fn of(dims: Dims, n: usize) -> Result<Self> {
        let (xyz, used) = dims.over(n)?;
        let tile = match xyz {
            [_, 1, 1] => [1024, 1, 1],
            [_, _, 1] => [32, 32, 1],
            _ => [8, 8, 8],
        };
        Ok(Self { xyz, tile, used })
    }

    /// Elements of a slab: whole tiles along the slowest dimension there is.
    fn slab(&self) -> usize {
        let [x, y, _] = self.xyz;
        let [tx, ty, tz] = self.tile;
        match (tz, ty) {
            (1, 1) => tx,
            (1, _) => x * ty,
            _ => x * y * tz,
        }
    }
}

impl LorenzoQuant {
    pub(crate) fn new(p: &mut Params, input: Dtype, shape: &[u32]) -> Result<Self> {
        let input = p.dtype("in", input)?;
        let code = p.dtype("code", Dtype::U16)?;
        let bits = 8 * code.size() as u32;
        let centering = p.flag("centering")?;
        let config = p.one_of("config", if centering { &[44, 64] } else { &[44, 40, 32, 64] })?;
        let stage = Self {
            input,
            code,
            bound: p.take("eb", 1e-3)?,
            mode: p.mode()?,
            radius: p.take("radius", 32768.min(1 << (bits - 1)))?,
            cap: p.take("cap", 0.2)?,
            zigzag: p.flag("zigzag")?,
            dims: p.dims(shape)?,
            config,
            kind: p.one_of("type", &[1, 12, 13])? as u16,
            ports: p.one_of("ports", if centering { &[3] } else { &[4, 3] })?,
            centering,
        };
        if !matches!((input, code), (Dtype::F32, Dtype::U8 | Dtype::U16) | (Dtype::F64, Dtype::U16 | Dtype::U32)) {
            return Err(format!("there is no ({}, {})", input.name(), code.name()));
        }
        if u64::from(stage.radius) > 1 << (bits - 1) || stage.radius == 0 {
            return Err(format!("radius {} does not fit {} bits", stage.radius, bits));
        }
        if stage.zigzag && stage.config < 44 {
            return Err("zigzag needs config=44 or 64".into());
        }
        if centering && stage.dims.rank > 1 {
            return Err("centering needs rank 1".into());
        }
        Ok(stage)
    }

    /// The absolute bound and the value that it was made from, as the configuration holds them.
    fn absolute(&self, input: &[u8]) -> (f64, f64) {
        let base = if self.mode == 0 { 0.0 } else { Real::of(self.input).base(input, self.mode == 2) };
        let bound = if base == 0.0 { self.bound } else { self.bound * base };
        let real = Real::of(self.input);
        (if self.config == 64 { real.round(bound) } else { f64::from(bound as f32) }, base)
    }

    /// The mean of the quantized values of a tile of rank 1.
    fn mean(&self, tile: &[u8], inverse: f64) -> f64 {
        let (real, size) = (Real::of(self.input), self.input.size());
        let numbers = tile.chunks_exact(size).map(|x| real.mul(real.load(x), inverse).round());
        let sum = numbers.fold(0.0, |sum, q| real.add(sum, q));
        real.round(sum / (tile.len() / size) as f64).round()
    }

    /// The stored form of a delta within the radius.
    fn coded(&self, delta: f64) -> u64 {
        let d = delta as i64;
        match (self.config, self.zigzag) {
            (32, _) => (d + i64::from(self.radius)) as u64,
            (_, true) => zigzag(d),
            (_, false) => d as u64,
        }
    }

    fn delta(&self, code: u64) -> f64 {
        match (self.config, self.zigzag) {
            (32, _) => (code as i64 - i64::from(self.radius)) as f64,
            (_, true) => signed(unzigzag(code) as u64, self.code.size()) as f64,
            (_, false) => signed(code, self.code.size()) as f64,
        }
    }

    /// Encodes the elements from `start` on into `codes`, and gives those that have no code.
    fn encode_slab(
        &self,
        input: &[u8],
        start: usize,
        codes: &mut [u8],
        tiling: &Tiling,
        inverse: f64,
    ) -> Vec<(f64, u32)> {
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let [nx, ny, _] = tiling.xyz;
        let [tx, ty, tz] = tiling.tile;
        let quantized = |i: usize| real.mul(real.load(&input[i * size..]), inverse).round();
        let mut outliers = Vec::new();
        let tile = || &input[start * size..(start + codes.len() / code_size) * size];
        let mean = if self.centering { self.mean(tile(), inverse) } else { 0.0 };
        for (k, slot) in codes.chunks_exact_mut(code_size).enumerate() {
            let i = start + k;
            let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
            let (left, up, back) = (!x.is_multiple_of(tx), !y.is_multiple_of(ty), !z.is_multiple_of(tz));
            // Differences along x, then y, then z; a neighbour outside the tile counts as 0.
            let along_x = |i: usize| if left { real.sub(quantized(i), quantized(i - 1)) } else { quantized(i) };
            let along_y = |i: usize| if up { real.sub(along_x(i), along_x(i - nx)) } else { along_x(i) };
            let mut d = if back { real.sub(along_y(i), along_y(i - nx * ny)) } else { along_y(i) };
            if self.centering && k == 0 {
                d = real.sub(d, mean);
            }
            if d.abs() < f64::from(self.radius) {
                store(slot, code_size, self.coded(d));
            } else {
                store(slot, code_size, self.coded(0.0));
                outliers.push((d, i as u32));
            }
        }
        outliers
    }

    /// Sums of `delta` over all tiles of a slab, in the order of the reference.
    fn sum_slab(&self, delta: &mut [f64], tiling: &Tiling) {
        let real = Real::of(self.input);
        let [nx, ny, _] = tiling.xyz;
        match tiling.tile {
            [_, 1, 1] => sum_rank1(real, delta),
            [_, _, 1] => sum_rank2(real, delta, nx),
            _ => sum_rank3(real, delta, nx, ny),
        }
    }
}

impl Stage for LorenzoQuant {
    fn kind(&self) -> u16 {
        self.kind
    }

    fn name(&self) -> &'static str {
        "lorenzo_quant"
    }

    fn output(&self) -> Dtype {
        self.code
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        let mut ports = vec![
            ("codes", self.code),
            ("outlier_errors", self.input),
            ("outlier_indices", Dtype::U32),
            ("outlier_count", Dtype::U32),
        ];
        ports.truncate(self.ports);
        if self.centering {
            ports.push(("means", self.input));
        }
        ports
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let n = input.len() / self.input.size();
        let real = Real::of(self.input);
        let input = whole(input, self.input.size());
        let tiling = Tiling::of(self.dims, n)?;
        let (bound, base) = self.absolute(input);
        let inverse = real.round(1.0 / real.mul(2.0, bound));
        let code_size = self.code.size();
        let mut codes = vec![0; n * code_size];
        let (used, padding) = codes.split_at_mut(tiling.used * code_size);
        let slab = tiling.slab().max(1);
        let mut outliers: Vec<Vec<(f64, u32)>> = used
            .par_chunks_mut(slab * code_size)
            .enumerate()
            .map(|(k, codes)| self.encode_slab(input, k * slab, codes, &tiling, inverse))
            .collect();
        for slot in padding.chunks_exact_mut(code_size) {
            store(slot, code_size, self.coded(JUNK));
        }
        // The ports are not sorted in real files either: here slab by slab from the last one.
        outliers.reverse();
        let outliers = Outliers { entries: outliers.concat() };
        let capacity = capacity(self.cap, n);
        if self.ports == 3 {
            all_fit(&outliers, capacity)?;
        }
        let count = outliers.entries.len() as u32;
        let [values, places, number] = outliers.ports(real, capacity, &branched[1..], count);
        let number = if n == 0 { Port { bytes: Vec::new(), allocated: 4 } } else { number };
        let mut ports = vec![codes.into(), values, places, number];
        ports.truncate(self.ports);
        if self.centering {
            let mut means = vec![0; n.div_ceil(1024) * real.size()];
            for (slot, tile) in means.chunks_exact_mut(real.size()).zip(input.chunks(1024 * real.size())) {
                real.store(slot, self.mean(tile, inverse));
            }
            ports.push(means.into());
        }

        let [x, y, z] = self.dims.xyz;
        let mut config = Record::default()
            .f32(bound)
            .u32(self.radius)
            .u32(n as u32)
            .u32(count.min(capacity as u32))
            .u8(self.input.code())
            .u8(self.code.code())
            .u8(self.dims.rank)
            .u8(self.mode)
            .u32(x)
            .u32(y)
            .u32(z);
        if self.config >= 40 {
            config = config.f32(self.bound).f32(base);
        }
        if self.config >= 44 {
            config = config.u8(u8::from(self.zigzag)).u8(u8::from(self.centering)).zeros(2);
        }
        if self.config == 64 {
            // The writer does not clear the bytes before the doubles.
            config = config.u32(0xA5A5_A5A5).f64(bound).f64(base);
        }
        Ok(Encoded { config: config.0, ports })
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let written: Vec<&[u8]> = encoded.ports.iter().map(|p| &p.bytes[..]).collect();
        let ports = ports.unwrap_or(&written);
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let n = ports[0].len() / code_size;
        let tiling = Tiling::of(self.dims, n)?;
        let (bound, _) = self.absolute(whole(input, size));
        let count = if self.ports == 4 { ports[3] } else { &encoded.config[12..16] };
        let mut outliers = Outliers::read(real, ports[1], ports[2], count).entries;
        outliers.sort_by_key(|o| o.1);
        let step = real.mul(2.0, bound);
        let slab = tiling.slab().max(1);
        let mut out = vec![0; n * size];
        out[..tiling.used * size].par_chunks_mut(slab * size).enumerate().for_each(|(k, out)| {
            let start = k * slab;
            let here = start..start + out.len() / size;
            let codes = &ports[0][here.start * code_size..here.end * code_size];
            let mut delta: Vec<f64> =
                codes.chunks_exact(code_size).map(|c| real.round(self.delta(load(c, code_size)))).collect();
            let first = outliers.partition_point(|o| (o.1 as usize) < here.start);
            for o in outliers[first..].iter().take_while(|o| (o.1 as usize) < here.end) {
                let slot = &mut delta[o.1 as usize - here.start];
                *slot = real.add(o.0, *slot);
            }
            if self.centering {
                delta[0] = real.add(delta[0], real.load(&ports[3][k * size..]));
            }
            self.sum_slab(&mut delta, &tiling);
            for (slot, sum) in out.chunks_exact_mut(size).zip(&delta) {
                real.store(slot, real.mul(*sum, step));
            }
        });
        Ok(Cow::Owned(out))
    }
}
