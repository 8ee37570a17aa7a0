//! The predictions of `GInterp`, level by level and pass by pass over a whole array.

use crate::elements::Real;

/// The parameters of the levels, the finest first.
#[derive(Debug, Clone)]
pub(crate) struct Splines {
    /// Elements along x, y and z; z is 1 in two dimensions.
    pub(crate) dims: [usize; 3],
    pub(crate) md: [bool; 4],
    pub(crate) natural: [bool; 4],
    pub(crate) reverse: [bool; 4],
}

/// A prediction along an axis, and which neighbors it used: 4 the cubic, 3 and 2 the quadratic ones, 1 both
/// neighbors, 0 only the one before.
type Guess = (f64, u8);

impl Splines {
    /// Sets every element but the anchors to what `set` makes of its position, its level and its prediction.
    pub(crate) fn walk(&self, real: Real, values: &mut [f64], mut set: impl FnMut(usize, usize, f64) -> f64) {
        let flat = self.dims[2] == 1;
        for level in (0..4).rev() {
            for pass in 0..3 {
                let [nx, ny, nz] = self.dims.map(|n| n.div_ceil(1 << level));
                for (z, y, x) in (0..nz).flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| (z, y, x)))) {
                    let odd = [x % 2 == 1, y % 2 == 1, z % 2 == 1];
                    let at = [x << level, y << level, z << level];
                    let guess = if self.md[level] {
                        (odd.iter().filter(|odd| **odd).count() == pass + 1)
                            .then(|| self.many(real, values, at, odd, level))
                    } else {
                        self.axis(level, pass, odd, flat).map(|axis| self.along(real, values, at, axis, level).0)
                    };
                    if let Some(guess) = guess {
                        let place = self.place(at);
                        values[place] = set(place, level, guess);
                    }
                }
            }
        }
    }

    pub(crate) fn place(&self, [x, y, z]: [usize; 3]) -> usize {
        x + self.dims[0] * (y + self.dims[1] * z)
    }

    /// The axis along which an element is predicted in this pass, with one axis at a time.
    fn axis(&self, level: usize, pass: usize, [x, y, z]: [bool; 3], flat: bool) -> Option<usize> {
        let axis = match (self.reverse[level], pass, x, y, z) {
            (false, 0, false, false, true) | (true, 2, _, _, true) => 2,
            (false, 1, false, true, _) | (true, 1, _, true, false) => 1,
            (false, 2, true, _, _) | (true, 0, true, false, false) => 0,
            _ => return None,
        };
        (!(flat && axis == 2)).then_some(axis)
    }

    fn along(&self, real: Real, values: &[f64], at: [usize; 3], axis: usize, level: usize) -> Guess {
        let (g, u, dim) = (at[axis], 1 << level, self.dims[axis]);
        let c = g % 16;
        let last = g / 16 == (dim - 1) / 16;
        let back3 = c >= 3 * u;
        let fwd3 = c + 3 * u <= 16 && (!last || g + 3 * u < dim);
        let fwd1 = !last || g + u < dim;
        let near = |by: isize| {
            let mut at = at;
            at[axis] = at[axis].wrapping_add_signed(by * u as isize);
            values[self.place(at)]
        };
        if back3 && fwd3 {
            (self.cubic(real, [near(-3), near(-1), near(1), near(3)], level), 4)
        } else if back3 && fwd1 {
            let v = real.fma(3.0, near(1), real.fma(6.0, near(-1), -near(-3)));
            (real.mul(v, 0.125), 3)
        } else if !back3 && fwd3 {
            let v = real.fma(3.0, near(-1), real.mul(6.0, near(1)));
            (real.mul(real.sub(v, near(3)), 0.125), 2)
        } else if !back3 && fwd1 {
            (real.mul(real.add(near(-1), near(1)), 0.5), 1)
        } else {
            (near(-1), 0)
        }
    }

    fn cubic(&self, real: Real, [a, b, d, e]: [f64; 4], level: usize) -> f64 {
        match (self.md[level], self.natural[level]) {
            (false, natural) => {
                let (p, q, w) = if natural { (-1.0, 9.0, 16.0) } else { (-3.0, 23.0, 40.0) };
                real.div(real.fma(p, e, real.fma(q, d, real.fma(p, a, real.mul(q, b)))), w)
            }
            (true, false) => real.mul(real.sub(real.fma(9.0, d, real.fma(9.0, b, -a)), e), 0.0625),
            (true, true) => {
                let v = real.fma(23.0, d, real.fma(23.0, b, -real.mul(3.0, a)));
                real.div(real.fma(-3.0, e, v), 40.0)
            }
        }
    }

    /// The prediction along all axes with odd coordinates.
    fn many(&self, real: Real, values: &[f64], at: [usize; 3], odd: [bool; 3], level: usize) -> f64 {
        let [x, y, z] = [0, 1, 2].map(|axis| odd[axis].then(|| self.along(real, values, at, axis, level)));
        let mean = |a: f64, b: f64| real.mul(real.add(a, b), 0.5);
        match (x, y, z) {
            (Some(v), None, None) | (None, Some(v), None) | (None, None, Some(v)) => v.0,
            (None, Some(b), Some(a)) => self.two(real, values, at, [(2, a), (1, b)], level),
            (Some(b), None, Some(a)) => self.two(real, values, at, [(2, a), (0, b)], level),
            (Some(b), Some(a), None) => self.two(real, values, at, [(1, a), (0, b)], level),
            (Some(x), Some(y), Some(z)) => match (x.1 == 4, y.1 == 4, z.1 == 4) {
                (true, true, true) => real.div(real.add(real.add(x.0, y.0), z.0), 3.0),
                (true, true, false) => mean(x.0, y.0),
                (true, false, true) => mean(x.0, z.0),
                (false, true, true) => mean(y.0, z.0),
                (false, false, true) => z.0,
                (false, true, false) => y.0,
                _ => x.0,
            },
            (None, None, None) => 0.0,
        }
    }

    fn two(&self, real: Real, values: &[f64], at: [usize; 3], along: [(usize, Guess); 2], level: usize) -> f64 {
        let rank = |case: u8| [0, 1, 2, 2, 3][usize::from(case)];
        let [(a, v), (b, w)] = along;
        match (rank(v.1), rank(w.1)) {
            (0, 0) => {
                let mut corner = at;
                corner[a] -= 1 << level;
                corner[b] -= 1 << level;
                real.sub(real.add(v.0, w.0), values[self.place(corner)])
            }
            (first, second) if first > second => v.0,
            (first, second) if first < second => w.0,
            _ => real.mul(real.add(v.0, w.0), 0.5),
        }
    }
}
