//! `ROIBinSplit`: boxes around peaks at full resolution, and a binned background.

use std::borrow::Cow;

use super::{Encoded, Stage};
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load};
use crate::spec::Params;
use crate::{Random, Result};

#[derive(Debug)]
pub(crate) struct RoibinSplit {
    dtype: Dtype,
    dims: [usize; 3],
    half: usize,
    bin: usize,
    /// z, x, y.
    peaks: Vec<[usize; 3]>,
}

impl RoibinSplit {
    pub(crate) fn new(p: &mut Params, input: Dtype, shape: &[u32]) -> Result<Self> {
        let dims = p.dims(shape)?.xyz.map(|n| n as usize);
        let (count, half, bin) = (p.take("peaks", 0)?, p.take("half", 4)?, p.take("bin", 1)?);
        let mut random = Random::new(p.take("seed", 1)?);
        if !input.is_float() || bin == 0 || dims.contains(&0) {
            return Err("works on floats of a known shape, with bins of at least one element".into());
        }
        // Some are outside of the field.
        let peaks = (0..count).map(|_| [dims[2], dims[0], dims[1]].map(|n| random.below(n + 2).min(0xFFFF))).collect();
        Ok(Self { dtype: input, dims, half, bin, peaks })
    }

    fn side(&self) -> usize {
        2 * self.half + 1
    }

    /// The element of slot `i` of a peak.
    fn element(&self, [z, x, y]: [usize; 3], i: usize) -> usize {
        let [nx, ny, nz] = self.dims;
        let place = |at: usize, d: usize, n: usize| (at + d).saturating_sub(self.half).min(n - 1);
        (z.min(nz - 1) * ny + place(y, i / self.side(), ny)) * nx + place(x, i % self.side(), nx)
    }
}

impl Stage for RoibinSplit {
    fn kind(&self) -> u16 {
        35
    }

    fn name(&self) -> &'static str {
        "roibin_split"
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        vec![("roi", self.dtype), ("bg", self.dtype), ("peaks", Dtype::U8)]
    }

    fn output(&self) -> Dtype {
        self.dtype
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let (real, [nx, ny, nz]) = (Real::of(self.dtype), self.dims);
        let size = real.size();
        if input.len() < nx * ny * nz * size {
            return Err(format!("{} bytes, but a shape of {nx} x {ny} x {nz}", input.len()));
        }
        let (mut boxes, mut background, mut peaks) = (Vec::new(), Vec::new(), Record::default());
        for &peak in &self.peaks {
            for i in 0..self.side() * self.side() {
                boxes.extend(&input[self.element(peak, i) * size..][..size]);
            }
            peaks = peaks.u32(peak[0] as u32).u16(peak[1] as u16).u16(peak[2] as u16);
        }
        for row in (0..nz).flat_map(|z| (0..ny).step_by(self.bin).map(move |y| [z, y])) {
            for x in (0..nx).step_by(self.bin) {
                let (mut sum, mut count) = (0.0, 0);
                for y in row[1]..(row[1] + self.bin).min(ny) {
                    for x in x..(x + self.bin).min(nx) {
                        sum += real.load(&input[((row[0] * ny + y) * nx + x) * size..]);
                        count += 1;
                    }
                }
                let mut own = input[((row[0] * ny + row[1]) * nx + x) * size..][..size].to_vec();
                if self.bin > 1 {
                    real.store(&mut own, sum / f64::from(count));
                }
                background.extend(own);
            }
        }
        let [x, y, z] = self.dims.map(|n| n as u32);
        let config = Record::default().u32(x).u32(y).u32(z).u32(self.peaks.len() as u32);
        let config = config.u16(self.half as u16).u16(self.bin as u16).u8(self.dtype.code()).zeros(1);
        Ok(Encoded { config: config.0, ports: vec![boxes.into(), background.into(), peaks.0.into()] })
    }

    fn inverse<'a>(&self, _: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let own: Vec<&[u8]> = encoded.ports.iter().map(|port| &port.bytes[..]).collect();
        let ports = ports.unwrap_or(&own);
        let (size, [nx, ny, nz], bin) = (self.dtype.size(), self.dims, self.bin);
        let mut out = Vec::new();
        for row in 0..ny * nz {
            let line = row / ny * ny.div_ceil(bin) + row % ny / bin;
            for x in 0..nx {
                out.extend(&ports[1][(line * nx.div_ceil(bin) + x / bin) * size..][..size]);
            }
        }
        let slots = self.side() * self.side();
        for (p, peak) in ports[2].chunks_exact(8).take(self.peaks.len()).enumerate() {
            let peak = [load(peak, 4), load(&peak[4..], 2), load(&peak[6..], 2)].map(|n| n as usize);
            for i in 0..slots {
                let at = self.element(peak, i) * size;
                out[at..at + size].copy_from_slice(&ports[0][(p * slots + i) * size..][..size]);
            }
        }
        Ok(Cow::Owned(out))
    }
}
