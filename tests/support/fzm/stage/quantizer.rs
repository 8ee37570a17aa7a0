//! Quantizer (section 5.2): every value on its own, to a multiple of the bound or to a power.

use std::borrow::Cow;

use super::outliers::{Outliers, capacity};
use super::{Encoded, Port, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load, signed, store, unzigzag, whole, zigzag};
use crate::spec::Params;

/// `mode=rel`.
const REL: u8 = 1;

#[derive(Debug)]
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
    config: usize,
}

impl Quantizer {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let input = p.dtype("in", input)?;
        let code = p.dtype("code", Dtype::U16)?;
        let mode = p.mode()?;
        let bits = 8 * code.size() as u32;
        // REL keeps two sign bits and the number 0 for itself.
        let most = 1_u64 << if mode == REL { bits - 3 } else { bits - 1 };
        let stage = Self {
            input,
            code,
            bound: p.take("eb", 1e-3)?,
            mode,
            radius: p.take("radius", most.min(32768) as u32)?,
            cap: p.take("cap", 0.2)?,
            zigzag: p.flag("zigzag")?,
            threshold: p.take("threshold", f64::INFINITY)?,
            in_place: p.flag("inplace")?,
            config: p.one_of("config", &[36, 28])?,
        };
        if !input.is_float() || !matches!(code, Dtype::U16 | Dtype::U32) {
            return Err(format!("there is no ({}, {})", input.name(), code.name()));
        }
        if u64::from(stage.radius) > most || stage.radius == 0 {
            return Err(format!("radius {} does not fit {bits} bits", stage.radius));
        }
        if stage.in_place
            && (mode == REL || !stage.zigzag || (input, code) != (Dtype::F32, Dtype::U32) || stage.config != 36)
        {
            return Err("inplace=1 needs f32, code=u32, zigzag=1, config=36 and not mode=rel".into());
        }
        if stage.zigzag && mode == REL {
            return Err("mode=rel knows no zigzag".into());
        }
        Ok(stage)
    }

    fn absolute(&self, input: &[u8]) -> (f64, f64) {
        match self.mode {
            REL => (0.0, 0.0),
            0 => (f64::from(self.bound as f32), 0.0),
            _ => {
                let range = Real::of(self.input).base(input, true);
                (f64::from(if range == 0.0 { self.bound } else { self.bound * range } as f32), range)
            }
        }
    }

    /// The distance of two bins in the logarithm; the platform's single-precision `log2`.
    fn log_step(&self) -> f32 {
        2.0_f32 * (1.0_f32 + self.bound as f32).log2()
    }

    /// The code of `x`, or `None` where it is an outlier.
    fn code_of(&self, x: f64, inverse: f32) -> Option<u64> {
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
            return ((self.value_of(code, 0.0) - x).abs() <= self.bound * x.abs()).then_some(code);
        }
        let q = (x as f32 * inverse).round_ties_even();
        if f64::from(q.abs()) < f64::from(self.radius) && x.abs() < self.threshold {
            let q = q as i64;
            Some(if self.zigzag { zigzag(q) } else { q as u64 })
        } else {
            None
        }
    }

    /// The value that a code stands for.
    fn value_of(&self, code: u64, step: f64) -> f64 {
        let real = Real::of(self.input);
        if self.mode == REL {
            if code == 0 {
                return 0.0;
            }
            let (c, bin) = (code - 1, ((code - 1) >> 2) as f32);
            let argument = if c & 2 == 0 { bin } else { -bin } * self.log_step();
            let r = f64::from(f64::from(argument).exp2() as f32);
            return if c & 1 == 0 { r } else { -r };
        }
        let size = self.code.size();
        let q = if self.zigzag { signed(unzigzag(code) as u64, size) } else { signed(code, size) };
        real.mul(real.round(q as f64), step)
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
        all[..if self.in_place { 1 } else { 4 }].to_vec()
    }

    fn ids(&self) -> usize {
        4
    }

    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let input = whole(input, size);
        let n = input.len() / size;
        let (bound, base) = self.absolute(input);
        let inverse = (1.0 / (2.0 * bound)) as f32;
        let mut codes = vec![0; n * code_size];
        let mut outliers = Outliers::default();
        for (i, (slot, element)) in codes.chunks_exact_mut(code_size).zip(input.chunks_exact(size)).enumerate() {
            let x = real.load(element);
            match self.code_of(x, inverse) {
                Some(code) => store(slot, code_size, code),
                None if self.in_place => {
                    let bits = load(element, size);
                    if bits >> 1 < u64::from(self.radius) {
                        return Err(format!("{x:e} looks like a code"));
                    }
                    store(slot, code_size, bits);
                }
                None => outliers.entries.push((x, i as u32)),
            }
        }
        // The order in the ports is arbitrary: never the one of the elements.
        outliers.entries.reverse();
        let capacity = capacity(self.cap, n);
        let count = outliers.entries.len().min(capacity) as u32;
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
        if self.config == 36 {
            config = config.f32(self.threshold).u8(u8::from(self.in_place)).zeros(3);
        }
        let mut ports: Vec<Port> = vec![codes.into()];
        if !self.in_place {
            // A value is stored as it is, NaN payload and all.
            let mut all = outliers.ports(real, capacity, &branched[1..], count);
            for (slot, entry) in all[0].bytes.chunks_exact_mut(size).zip(&outliers.entries[..count as usize]) {
                slot.copy_from_slice(&input[entry.1 as usize * size..][..size]);
            }
            if n == 0 {
                all[2].bytes.clear();
            }
            ports.extend(all);
        }
        Ok(Encoded { config: config.0, ports })
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let written: Vec<&[u8]> = encoded.ports.iter().map(|p| &p.bytes[..]).collect();
        let ports = ports.unwrap_or(&written);
        let (real, size, code_size) = (Real::of(self.input), self.input.size(), self.code.size());
        let step = real.mul(2.0, self.absolute(whole(input, size)).0);
        let codes = ports[0].chunks_exact(code_size);
        let mut out = vec![0; codes.len() * size];
        for (slot, code) in out.chunks_exact_mut(size).zip(codes) {
            let code = load(code, code_size);
            if self.in_place && code >> 1 >= u64::from(self.radius) {
                store(slot, size, code);
            } else {
                real.store(slot, self.value_of(code, step));
            }
        }
        if let [_, values, places, count] = ports {
            for (j, entry) in Outliers::read(real, values, places, count).entries.iter().enumerate() {
                out[entry.1 as usize * size..][..size].copy_from_slice(&values[j * size..][..size]);
            }
        }
        Ok(Cow::Owned(out))
    }
}
