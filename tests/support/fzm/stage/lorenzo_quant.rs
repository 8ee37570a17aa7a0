//! `LorenzoQuant` (section 5.1): prediction from the neighbours in a tile, and quantization.

use std::borrow::Cow;

use rayon::prelude::*;

use super::outliers::{Outliers, capacity};
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
        let stage = Self {
            input,
            code,
            bound: p.take("eb", 1e-3)?,
            mode: p.mode()?,
            radius: p.take("radius", 32768.min(1 << (bits - 1)))?,
            cap: p.take("cap", 0.2)?,
            zigzag: p.flag("zigzag")?,
            dims: p.dims(shape)?,
            config: p.one_of("config", &[44, 40, 32])?,
            kind: p.one_of("type", &[1, 12, 13])? as u16,
        };
        if !matches!((input, code), (Dtype::F32, Dtype::U8 | Dtype::U16) | (Dtype::F64, Dtype::U16 | Dtype::U32)) {
            return Err(format!("there is no ({}, {})", input.name(), code.name()));
        }
        if u64::from(stage.radius) > 1 << (bits - 1) || stage.radius == 0 {
            return Err(format!("radius {} does not fit {} bits", stage.radius, bits));
        }
        if stage.zigzag && stage.config != 44 {
            return Err("zigzag needs config=44".into());
        }
        Ok(stage)
    }

    /// The absolute bound and the value that it was made from, as the configuration holds them.
    fn absolute(&self, input: &[u8]) -> (f64, f64) {
        let base = if self.mode == 0 { 0.0 } else { Real::of(self.input).base(input, self.mode == 2) };
        let bound = if base == 0.0 { self.bound } else { self.bound * base };
        (f64::from(bound as f32), base)
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
        for (k, slot) in codes.chunks_exact_mut(code_size).enumerate() {
            let i = start + k;
            let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
            let (left, up, back) = (!x.is_multiple_of(tx), !y.is_multiple_of(ty), !z.is_multiple_of(tz));
            // Differences along x, then y, then z; a neighbour outside the tile counts as 0.
            let along_x = |i: usize| if left { real.sub(quantized(i), quantized(i - 1)) } else { quantized(i) };
            let along_y = |i: usize| if up { real.sub(along_x(i), along_x(i - nx)) } else { along_x(i) };
            let d = if back { real.sub(along_y(i), along_y(i - nx * ny)) } else { along_y(i) };
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

/// One tile of 1024: 8 warps of 32 lanes of 4 elements.
fn sum_rank1(real: Real, tile: &mut [f64]) {
    let mut a = [0.0; 1024];
    a[..tile.len()].copy_from_slice(tile);
    for lane in a.as_chunks_mut::<4>().0 {
        for k in 1..4 {
            lane[k] = real.add(lane[k], lane[k - 1]);
        }
    }
    let mut warps = [0.0; 8];
    for (warp, total) in a.as_chunks_mut::<128>().0.iter_mut().zip(&mut warps) {
        let mut lanes: [f64; 32] = std::array::from_fn(|l| warp[4 * l + 3]);
        real.kogge_stone(&mut lanes);
        for (l, lane) in warp.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let before = if l == 0 { 0.0 } else { lanes[l - 1] };
            for v in lane {
                *v = real.add(*v, before);
            }
        }
        *total = warp[127];
    }
    real.kogge_stone(&mut warps);
    for (warp, before) in a.as_chunks_mut::<128>().0.iter_mut().skip(1).zip(warps) {
        for v in warp {
            *v = real.add(*v, before);
        }
    }
    tile.copy_from_slice(&a[..tile.len()]);
}

/// A band of 32 rows: per column in four groups of 8 rows, then each row of 32 columns.
fn sum_rank2(real: Real, band: &mut [f64], nx: usize) {
    let rows = band.len() / nx;
    for x in 0..nx {
        let mut column = [0.0; 32];
        for y in 0..rows {
            column[y] = band[y * nx + x];
        }
        for group in column.as_chunks_mut::<8>().0 {
            for r in 1..8 {
                group[r] = real.add(group[r], group[r - 1]);
            }
        }
        let s: [f64; 4] = std::array::from_fn(|g| column[8 * g + 7]);
        let p1 = s[0];
        let p2 = real.add(s[1], s[0]);
        let p3 = real.add(s[2], p2);
        for (group, p) in column.as_chunks_mut::<8>().0.iter_mut().skip(1).zip([p1, p2, p3]) {
            for v in group {
                *v = real.add(*v, p);
            }
        }
        for y in 0..rows {
            band[y * nx + x] = column[y];
        }
    }
    for row in band.chunks_mut(nx) {
        for tile in row.chunks_mut(32) {
            real.kogge_stone(tile);
        }
    }
}

/// A band of 8 planes: along y one after another, along x and z in Kogge-Stone order, in tiles of 8.
fn sum_rank3(real: Real, band: &mut [f64], nx: usize, ny: usize) {
    let plane = nx * ny;
    let planes = band.len() / plane;
    for row in plane_rows(nx, ny, planes) {
        if !(row / nx % ny).is_multiple_of(8) {
            for x in 0..nx {
                band[row + x] = real.add(band[row + x], band[row + x - nx]);
            }
        }
    }
    for row in band.chunks_mut(nx) {
        for tile in row.chunks_mut(8) {
            real.kogge_stone(tile);
        }
    }
    for i in 0..plane {
        let mut lanes = [0.0; 8];
        for z in 0..planes {
            lanes[z] = band[z * plane + i];
        }
        real.kogge_stone(&mut lanes);
        for z in 0..planes {
            band[z * plane + i] = lanes[z];
        }
    }
}

/// The first element of every row, in order.
fn plane_rows(nx: usize, ny: usize, planes: usize) -> impl Iterator<Item = usize> {
    (0..planes * ny).map(move |row| row * nx)
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
        vec![
            ("codes", self.code),
            ("outlier_errors", self.input),
            ("outlier_indices", Dtype::U32),
            ("outlier_count", Dtype::U32),
        ]
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
        let count = outliers.entries.len() as u32;
        let [values, places, number] = outliers.ports(real, capacity, &branched[1..], count);
        let number = if n == 0 { Port { bytes: Vec::new(), allocated: 4 } } else { number };

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
        if self.config == 44 {
            config = config.u8(u8::from(self.zigzag)).zeros(3);
        }
        Ok(Encoded { config: config.0, ports: vec![codes.into(), values, places, number] })
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let written: Vec<&[u8]> = encoded.ports.iter().map(|p| &p.bytes[..]).collect();
        let ports = ports.unwrap_or(&written);
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let n = ports[0].len() / code_size;
        let tiling = Tiling::of(self.dims, n)?;
        let (bound, _) = self.absolute(whole(input, size));
        let mut outliers = Outliers::read(real, ports[1], ports[2], ports[3]).entries;
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
            self.sum_slab(&mut delta, &tiling);
            for (slot, sum) in out.chunks_exact_mut(size).zip(&delta) {
                real.store(slot, real.mul(*sum, step));
            }
        });
        Ok(Cow::Owned(out))
    }
}
