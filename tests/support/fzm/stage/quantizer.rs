//! Quantizer (section 5.2): every value on its own, to a multiple of the bound or to a power.

use std::borrow::Cow;

use super::outliers::{Outliers, all_fit, capacity};
use super::{Encoded, Port, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load, signed, store, unzigzag, whole, zigzag};
use crate::spec::Params;

/// `mode=rel`.
const REL: u8 = 1;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of the configuration")]
pub(crate) struct Quantizer {
    input: Dtype,
    code: Dtype,
    bound: f64,
    mode: u8,
    radius: u32,
    cap: f64,
    zigzag: bool,
    threshold: f64,
    in_place: bool,
    linear: bool,
    precise: bool,
    dither: bool,
    seed: u64,
    strength: f32,
    verify: bool,
    pow2: bool,
    config: usize,
    /// Outputs: 1, 3, or 4 with the count.
    ports: usize,
}

impl Quantizer {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let input = p.dtype("in", input)?;
        let code = p.dtype("code", Dtype::U16)?;
        let mode = p.mode()?;
        let bits = 8 * code.size() as u32;
        // REL keeps two sign bits and the number 0 for itself.
        let most = 1_u64 << if mode == REL { bits - 3 } else { bits - 1 };
        let (in_place, linear) = (p.flag("inplace")?, p.flag("linear")?);
        let config = p.one_of("config", &[36, 28, 48, 52, 56, 72])?;
        let ports: &[usize] = match config {
            _ if in_place || linear => &[1],
            28 | 36 => &[4, 3],
            _ => &[3, 4],
        };
        let stage = Self {
            input,
            code,
            bound: p.take("eb", 1e-3)?,
            mode,
            radius: p.take("radius", most.min(32768) as u32)?,
            cap: p.take("cap", 0.2)?,
            zigzag: p.flag("zigzag")?,
            threshold: p.take("threshold", f64::INFINITY)?,
            in_place,
            linear,
            precise: p.flag("precise")?,
            dither: p.flag("dither")?,
            seed: p.take("seed", 0)?,
            strength: p.take("strength", 1.0)?,
            verify: p.flag("verify")?,
            pow2: p.flag("pow2")?,
            config,
            ports: p.one_of("ports", ports)?,
        };
        stage.check(most)?;
        Ok(stage)
    }

    fn check(&self, most: u64) -> Result<()> {
        if !self.input.is_float() || !matches!(self.code, Dtype::U16 | Dtype::U32) {
            return Err(format!("there is no ({}, {})", self.input.name(), self.code.name()));
        }
        if u64::from(self.radius) > most || self.radius == 0 {
            return Err(format!("radius {} does not fit {}", self.radius, self.code.name()));
        }
        let rel = self.mode == REL;
        let pair = (self.input, self.code);
        if self.in_place && (rel || !self.zigzag || pair != (Dtype::F32, Dtype::U32) || self.config < 36) {
            return Err("inplace=1 needs f32, code=u32, zigzag=1, config=36 or more and not mode=rel".into());
        }
        if self.zigzag && rel || self.linear && (rel || self.in_place || self.zigzag || self.config < 36) {
            return Err("mode=rel, linear=1 and zigzag=1 exclude each other, and linear=1 also inplace=1".into());
        }
        if self.dither && (self.linear || self.in_place || self.config < 48) {
            return Err("dither=1 needs config=48 or more and neither linear=1 nor inplace=1".into());
        }
        if (self.strength.to_bits() != 1.0_f32.to_bits() && self.config < 52)
            || ((self.precise || self.verify || self.pow2) && self.config != 72)
        {
            return Err("strength needs config=52 or more, precise, verify and pow2 config=72".into());
        }
        if self.precise && !self.linear || self.verify && !self.in_place || self.pow2 && rel {
            return Err("precise=1 needs linear=1, verify=1 inplace=1, pow2=1 any mode but rel".into());
        }
        Ok(())
    }

    /// The type of the calculations: files of some months restore f64 data in f32.
    fn real(&self) -> Real {
        Real::of(if matches!(self.config, 48..=56) { Dtype::F32 } else { self.input })
    }

    fn absolute(&self, input: &[u8]) -> (f64, f64) {
        let base = match self.mode {
            0 | REL => 0.0,
            mode => Real::of(self.input).base(input, mode == 2),
        };
        let mut bound = match self.mode {
            REL => return (0.0, 0.0),
            _ if base == 0.0 => self.bound,
            _ => self.bound * base,
        };
        if self.pow2 {
            bound = bound.log2().floor().exp2();
        }
        (if self.config == 72 { Real::of(self.input).round(bound) } else { f64::from(bound as f32) }, base)
    }

    /// The distance of two bins in the logarithm; the platform's single-precision `log2`.
    fn log_step(&self) -> f32 {
        2.0_f32 * (1.0_f32 + self.bound as f32).log2()
    }

    /// The noise for element `i`, from -1 to below 1.
    fn noise(&self, i: usize) -> f64 {
        let mut m = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.seed;
        m = (m ^ (m >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        m = (m ^ (m >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        m ^= m >> 31;
        (m >> 40) as f64 / f64::from(1 << 24) * 2.0 - 1.0
    }

    /// The code of `x`, element `i`, or `None` where it is an outlier.
    fn code_of(&self, x: f64, i: usize, bound: f64) -> Option<u64> {
        if self.mode == REL {
            if x == 0.0 || !x.is_normal() {
                return None;
            }
            let bin = (x.abs().log2() / f64::from(self.log_step())).round_ties_even();
            if bin.abs() >= f64::from(self.radius) {
                return None;
            }
            let bin = bin as i64;
            let code = ((bin.unsigned_abs() << 2) | (u64::from(bin < 0) << 1) | u64::from(x < 0.0)) + 1;
            return ((self.value_of(code, i, bound) - x).abs() <= self.bound * x.abs()).then_some(code);
        }
        let real = if self.config == 72 { Real::of(self.input) } else { Real::of(Dtype::F32) };
        let q = if self.verify {
            real.mul(x, real.round(0.5 / bound)).round()
        } else if self.precise {
            (x * (1.0 / (2.0 * bound))).round_ties_even()
        } else {
            real.mul(real.round(x), real.round(1.0 / real.mul(2.0, bound))).round_ties_even()
        };
        let most =
            if self.linear { ((1_u64 << (8 * self.code.size() - 1)) - 1) as f64 } else { f64::from(self.radius) };
        // A comparison with a NaN is false.
        if !(q.abs() < most && x.abs() < self.threshold) {
            return None;
        }
        let code = if self.zigzag { zigzag(q as i64) } else { q as i64 as u64 };
        let exact = || (x - self.value_of(code & self.mask(), i, bound)).abs() <= bound;
        (!(self.dither || self.verify) || exact()).then_some(code)
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.code.size())
    }

    /// The value that the code of element `i` stands for.
    fn value_of(&self, code: u64, i: usize, bound: f64) -> f64 {
        if self.mode == REL {
            if code == 0 {
                return 0.0;
            }
            let (c, bin) = (code - 1, ((code - 1) >> 2) as f32);
            let mut argument = if c & 2 == 0 { bin } else { -bin } * self.log_step();
            if self.dither {
                argument = (self.noise(i) as f32).mul_add(self.log_step() * 0.5 * self.strength, argument);
            }
            let r = f64::from(f64::from(argument).exp2() as f32);
            return if c & 1 == 0 { r } else { -r };
        }
        let size = self.code.size();
        let q = if self.zigzag { signed(unzigzag(code) as u64, size) } else { signed(code, size) } as f64;
        let real = self.real();
        if self.precise {
            return real.round(q * (2.0 * bound));
        }
        let value = real.mul(real.round(q), real.mul(2.0, bound));
        if self.dither {
            return real.fma(self.noise(i), real.mul(bound, f64::from(self.strength)), value);
        }
        value
    }

    fn record(&self, n: usize, count: u32, bound: f64, base: f64) -> Vec<u8> {
        let mut config = Record::default()
            .f32(bound)
            .f32(self.bound)
            .f32(base)
            .u32(self.radius)
            .u32(n as u32)
            .u32(count)
            .u8(self.input.code())
            .u8(self.code.code())
            .u8(self.mode)
            .u8(u8::from(self.zigzag));
        if self.config >= 36 {
            config = config.f32(self.threshold).u8(u8::from(self.in_place)).u8(u8::from(self.linear));
            config = config.u8(u8::from(self.dither)).u8(u8::from(self.precise));
        }
        if self.config >= 48 {
            config = config.u8(u8::from(self.pow2)).u8(u8::from(self.verify)).zeros(2).u64(self.seed);
        }
        if self.config >= 52 {
            config = config.f32(f64::from(self.strength)).zeros(4);
        }
        if self.config == 72 {
            config = config.f64(bound).f64(base);
        }
        config.0.truncate(self.config);
        config.0
    }
}

impl Stage for Quantizer {
    fn kind(&self) -> u16 {
        14
    }

    fn name(&self) -> &'static str {
        "quantizer"
    }

    fn output(&self) -> Dtype {
        self.code
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        let all = [
            ("codes", self.code),
            ("outlier_vals", self.input),
            ("outlier_idxs", Dtype::U32),
            ("outlier_count", Dtype::U32),
        ];
        all[..self.ports].to_vec()
    }

    fn ids(&self) -> usize {
        4
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let input = whole(input, size);
        let n = input.len() / size;
        let (bound, base) = self.absolute(input);
        let mut codes = vec![0; n * code_size];
        let mut outliers = Outliers::default();
        for (i, (slot, element)) in codes.chunks_exact_mut(code_size).zip(input.chunks_exact(size)).enumerate() {
            let x = real.load(element);
            match self.code_of(x, i, bound) {
                Some(code) => store(slot, code_size, code),
                None if self.in_place => {
                    let bits = load(element, size);
                    if bits >> 1 < u64::from(self.radius) {
                        return Err(format!("{x:e} looks like a code"));
                    }
                    store(slot, code_size, bits);
                }
                None if self.linear => return Err(format!("{x:e} has no code")),
                None => outliers.entries.push((x, i as u32)),
            }
        }
        // The order in the ports is arbitrary: never the one of the elements.
        outliers.entries.reverse();
        let capacity = capacity(self.cap, n);
        if self.ports == 3 {
            all_fit(&outliers, capacity)?;
        }
        let count = outliers.entries.len().min(capacity) as u32;
        let mut ports: Vec<Port> = vec![codes.into()];
        if self.ports > 1 {
            // A value is stored as it is, NaN payload and all.
            let mut all = outliers.ports(real, capacity, &branched[1..], count);
            for (slot, entry) in all[0].bytes.chunks_exact_mut(size).zip(&outliers.entries[..count as usize]) {
                slot.copy_from_slice(&input[entry.1 as usize * size..][..size]);
            }
            if n == 0 {
                all[2].bytes.clear();
            }
            ports.extend(all.into_iter().take(self.ports - 1));
        }
        Ok(Encoded { config: self.record(n, count, bound, base), ports })
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let written: Vec<&[u8]> = encoded.ports.iter().map(|p| &p.bytes[..]).collect();
        let ports = ports.unwrap_or(&written);
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let (bound, _) = self.absolute(whole(input, size));
        let codes = ports[0].chunks_exact(code_size);
        let mut out = vec![0; codes.len() * size];
        for (i, (slot, code)) in out.chunks_exact_mut(size).zip(codes).enumerate() {
            let code = load(code, code_size);
            if self.in_place && code >> 1 >= u64::from(self.radius) {
                store(slot, size, code);
            } else {
                real.store(slot, self.value_of(code, i, bound));
            }
        }
        if let [_, values, places, rest @ ..] = ports {
            let count = rest.first().copied().unwrap_or(&encoded.config[20..24]);
            for (j, entry) in Outliers::read(real, values, places, count).entries.iter().enumerate() {
                out[entry.1 as usize * size..][..size].copy_from_slice(&values[j * size..][..size]);
            }
        }
        Ok(Cow::Owned(out))
    }
}
