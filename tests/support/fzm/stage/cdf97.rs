//! CDF97, the wavelet of SPERR, and `Cdf97OutlierCorrect`, which corrects a field that was quantized behind it.

use std::borrow::Cow;

use super::{Encoded, Reads, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Real, Record, load};
use crate::spec::{Dims, Params};

/// The factors of the lifting steps.
struct Filter {
    real: Real,
    alpha: f64,
    beta: f64,
    gamma: f64,
    delta: f64,
    eps: f64,
    inverse: f64,
}

impl Filter {
    fn new(real: Real) -> Self {
        let [h0, h1, h2, h3, h4]: [f64; 5] =
            [0.602_949_018_236, 0.266_864_118_443, -0.078_223_266_529, -0.016_864_118_443, 0.026_748_757_411];
        let r0 = h0 - 2.0 * h4 * h1 / h3;
        let r1 = (h2 - h4) - (h4 * h1) / h3;
        let s0 = (h1 - h3) - (h3 * r0) / r1;
        let t0 = h0 - 2.0 * (h2 - h4);
        let eps = 2_f64.sqrt() * t0;
        Self {
            real,
            alpha: real.round(h4 / h3),
            beta: real.round(h3 / r1),
            gamma: real.round(r1 / s0),
            delta: real.round(s0 / t0),
            eps: real.round(eps),
            inverse: real.round(1.0 / eps),
        }
    }

    /// The sum of the two neighbors of sample `i` among `other`: those at `i + shift - 1` and `i + shift`.
    fn around(&self, other: &[f64], i: usize, shift: usize) -> f64 {
        let last = other.len() - 1;
        self.real.add(other[(i + shift).saturating_sub(1).min(last)], other[(i + shift).min(last)])
    }

    fn step(&self, own: &mut [f64], other: &[f64], shift: usize, factor: f64) {
        for (i, own) in own.iter_mut().enumerate() {
            *own = self.real.fma(factor, self.around(other, i, shift), *own);
        }
    }

    fn forward(&self, line: &[f64]) -> Vec<f64> {
        let mut even: Vec<f64> = line.iter().copied().step_by(2).collect();
        let mut odd: Vec<f64> = line.iter().copied().skip(1).step_by(2).collect();
        self.step(&mut odd, &even, 1, self.alpha);
        self.step(&mut even, &odd, 0, self.beta);
        self.step(&mut odd, &even, 1, self.gamma);
        self.step(&mut even, &odd, 0, self.delta);
        for x in &mut even {
            *x = self.real.mul(self.eps, *x);
        }
        for x in &mut odd {
            *x = self.real.mul(*x, -self.inverse);
        }
        [even, odd].concat()
    }

    fn backward(&self, line: &[f64]) -> Vec<f64> {
        let (even, odd) = line.split_at(line.len() - line.len() / 2);
        let (mut even, mut odd) = (even.to_vec(), odd.to_vec());
        for x in &mut odd {
            *x = self.real.mul(*x, -self.eps);
        }
        for (i, own) in even.iter_mut().enumerate() {
            let less = self.real.mul(self.delta, self.around(&odd, i, 0));
            *own = self.real.fma(self.inverse, *own, -less);
        }
        self.step(&mut odd, &even, 1, -self.gamma);
        self.step(&mut even, &odd, 0, -self.beta);
        self.step(&mut odd, &even, 1, -self.alpha);
        (0..line.len()).map(|i| if i % 2 == 0 { even[i / 2] } else { odd[i / 2] }).collect()
    }
}

fn levels(mut n: usize) -> usize {
    let mut levels = 0;
    while n >= 9 {
        levels += 1;
        n -= n / 2;
    }
    levels.min(6)
}

fn extent(n: usize, level: usize) -> usize {
    (0..level).fold(n, |n, _| n - n / 2)
}

/// Axis (0 for x) and corner (x, y, z) of each pass, in forward order.
type Passes = Vec<(usize, [usize; 3])>;

fn plane_passes([nx, ny]: [usize; 2], nz: usize) -> Passes {
    let corner = |l| [extent(nx, l), extent(ny, l), nz];
    (0..levels(nx.min(ny))).flat_map(|l| [(0, corner(l)), (1, corner(l))]).collect()
}

fn passes([nx, ny, nz]: [usize; 3]) -> Passes {
    if nz == 1 && ny == 1 {
        return (0..levels(nx)).map(|l| (0, [extent(nx, l), 1, 1])).collect();
    }
    if nz == 1 {
        return plane_passes([nx, ny], 1);
    }
    let (a, b) = (levels(nx.min(ny)), levels(nz));
    if ny >= 2 && (a == b || a >= 5 && b >= 5) {
        let corner = |l| [extent(nx, l), extent(ny, l), extent(nz, l)];
        return (0..a.min(b)).flat_map(|l| [0, 1, 2].map(|axis| (axis, corner(l)))).collect();
    }
    (0..b).map(|l| (2, [nx, ny, extent(nz, l)])).chain(plane_passes([nx, ny], nz)).collect()
}

/// Applies `change` to every line along the axis in the corner.
fn pass(
    values: &mut [f64],
    dims: [usize; 3],
    (axis, corner): (usize, [usize; 3]),
    change: impl Fn(&[f64]) -> Vec<f64>,
) {
    let strides = [1, dims[0], dims[0] * dims[1]];
    let mut starts = corner;
    starts[axis] = 1;
    for z in 0..starts[2] {
        for y in 0..starts[1] {
            for x in 0..starts[0] {
                let at = x + y * strides[1] + z * strides[2];
                let line: Vec<f64> = (0..corner[axis]).map(|k| values[at + k * strides[axis]]).collect();
                for (k, value) in change(&line).into_iter().enumerate() {
                    values[at + k * strides[axis]] = value;
                }
            }
        }
    }
}

fn load_all(real: Real, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(real.size()).map(|x| real.load(x)).collect()
}

fn store_all(real: Real, values: &[f64]) -> Vec<u8> {
    let mut out = vec![0; values.len() * real.size()];
    for (own, &value) in out.chunks_exact_mut(real.size()).zip(values) {
        real.store(own, value);
    }
    out
}

#[derive(Debug)]
pub(crate) struct Cdf97 {
    dtype: Dtype,
    dims: Dims,
}

/// Bytes of the longest line that the library transforms.
const LONGEST: usize = 49152;

impl Cdf97 {
    pub(crate) fn new(p: &mut Params, input: Dtype, shape: &[u32]) -> Result<Self> {
        if !input.is_float() {
            return Err(format!("works on floats, not on {}", input.name()));
        }
        let (dims, longest) = (p.dims(shape)?, LONGEST / input.size());
        if dims.xyz.iter().any(|&n| n as usize > longest) {
            return Err(format!("the library transforms lines of at most {longest} elements"));
        }
        Ok(Self { dtype: input, dims })
    }

    fn extents(&self, bytes: usize) -> Result<[usize; 3]> {
        let dims = self.dims.xyz.map(|n| n as usize);
        let n = bytes / self.dtype.size();
        if bytes == 0 || dims.iter().product::<usize>() == n && n * self.dtype.size() == bytes {
            Ok(dims)
        } else {
            Err(format!("the shape {dims:?} is not that of {bytes} bytes"))
        }
    }
}

impl Stage for Cdf97 {
    fn kind(&self) -> u16 {
        39
    }

    fn name(&self) -> &'static str {
        "cdf97"
    }

    fn output(&self) -> Dtype {
        self.dtype
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let (real, dims) = (Real::of(self.dtype), self.extents(input.len())?);
        let (filter, mut values) = (Filter::new(real), load_all(real, input));
        if !values.is_empty() {
            for own in passes(dims) {
                pass(&mut values, dims, own, |line| filter.forward(line));
            }
        }
        let [x, y, z] = self.dims.xyz;
        let config = Record::default().u8(self.dtype.code()).u8(self.dims.rank).zeros(2).u32(x).u32(y).u32(z);
        Ok(Encoded::one(config.0, store_all(real, &values)))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let (real, dims) = (Real::of(self.dtype), self.extents(input.len())?);
        let (filter, mut values) =
            (Filter::new(real), load_all(real, ports.map_or(&encoded.ports[0].bytes[..], |p| p[0])));
        if !values.is_empty() {
            for own in passes(dims).into_iter().rev() {
                pass(&mut values, dims, own, |line| filter.backward(line));
            }
        }
        Ok(Cow::Owned(store_all(real, &values)))
    }
}

#[derive(Debug)]
pub(crate) struct Correct {
    dims: [usize; 2],
    bound: f64,
}

impl Correct {
    pub(crate) fn new(p: &mut Params, inputs: &[Reads]) -> Result<Self> {
        let dims = p.dims(&inputs[0].shape)?.xyz.map(|n| n as usize);
        let bound = f64::from(p.take("eb", 1e-4)? as f32);
        match (inputs, dims) {
            ([field, codes], [x, y, 1])
                if (field.dtype, codes.dtype.signed()) == (Dtype::F32, Dtype::I32)
                    && x * y > 0
                    && x.max(y) <= LONGEST / 4 =>
            {
                Ok(Self { dims: [x, y], bound })
            }
            _ => Err("reads a plane of f32, and its codes of 32 bits".into()),
        }
    }

    /// The field that the codes give.
    fn field(&self, codes: &[u8]) -> Result<Vec<f64>> {
        let ([nx, ny], real) = (self.dims, Real::of(Dtype::F32));
        if codes.len() < 4 * nx * ny {
            return Err(format!("{} bytes of codes, but {nx} x {ny} elements", codes.len()));
        }
        let step = real.mul(2.0, self.bound);
        let code = |code: &[u8]| real.mul(real.round(f64::from(load(code, 4) as u32 as i32)), step);
        let mut values: Vec<f64> = codes.chunks_exact(4).take(nx * ny).map(code).collect();
        let filter = Filter::new(real);
        for own in plane_passes(self.dims, 1).into_iter().rev() {
            pass(&mut values, [nx, ny, 1], own, |line| filter.backward(line));
        }
        Ok(values)
    }
}

impl Stage for Correct {
    fn kind(&self) -> u16 {
        41
    }

    fn name(&self) -> &'static str {
        "cdf97_outlier_correct"
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        vec![("correction", Dtype::Opaque), ("codes", Dtype::I32)]
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode_all(&self, inputs: &[&[u8]], _: &[bool]) -> Result<Encoded> {
        let real = Real::of(Dtype::F32);
        let (field, decoded) = (load_all(real, inputs[0]), self.field(inputs[1])?);
        let errors = field.iter().zip(&decoded).map(|(x, f)| real.sub(*x, *f)).enumerate();
        let errors: Vec<(usize, f64)> = errors.filter(|(_, e)| e.abs() > self.bound).collect();
        let mut out = Record::default().u32(errors.len() as u32);
        for &(at, _) in &errors {
            out = out.u32(at as u32);
        }
        for &(_, e) in &errors {
            out = out.f32(e);
        }
        let config = Record::default().u32(self.dims[0] as u32).u32(self.dims[1] as u32).f32(self.bound);
        Ok(Encoded { config: config.0, ports: vec![out.0.into(), inputs[1].to_vec().into()] })
    }

    fn inverse_all<'a>(
        &self,
        _: &[&'a [u8]],
        ports: Option<&[&[u8]]>,
        encoded: &Encoded,
    ) -> Result<Vec<Cow<'a, [u8]>>> {
        let own = [&encoded.ports[0].bytes[..], &encoded.ports[1].bytes[..]];
        let (real, [corrections, codes]) = (Real::of(Dtype::F32), ports.map_or(own, |p| [p[0], p[1]]));
        let mut field = self.field(codes)?;
        let count = load(corrections, 4) as usize;
        for k in 0..count {
            let at = load(&corrections[4 + 4 * k..], 4) as usize;
            field[at] = real.add(field[at], real.load(&corrections[4 + 4 * (count + k)..]));
        }
        let codes = codes[..4 * field.len()].to_vec();
        Ok(vec![Cow::Owned(store_all(real, &field)), Cow::Owned(codes)])
    }
}
