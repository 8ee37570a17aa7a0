//! One tile with its far faces: from corrections to values, level by level.
//!
//! Reference: section 22. A level is done in three passes; the elements of a pass depend only on earlier passes and
//! levels, so each is replaced in place. Whole rows along x are computed, and their elements that belong to the pass
//! are replaced.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::cmp::Ordering;

use super::spline::{Case, Dequantize, Real, SIDE, Spline, SplineLevel, TileRow, between, rows_between};
use crate::codec::simd_dispatch::{SimdLoop, SimdOps};

/// Rows of a tile with its far faces.
const ROWS: usize = SIDE * SIDE;
/// Elements before and after a row, so that every neighbor can be read.
const MARGIN: usize = 3 * 8;

/// A tile: the corrections of its elements at first, values in the end.
pub(super) struct Tile<T> {
    /// By z and y.
    rows: Box<[TileRow<T>; ROWS]>,
    /// Elements that exist per axis, slowest first; at most [`SIDE`]. The others may hold anything.
    pub(super) extents: [usize; 3],
}

impl<T: Real> Tile<T> {
    pub(super) fn new() -> Self {
        Self { rows: Box::new([[T::default(); SIDE]; ROWS]), extents: [0; 3] }
    }

    /// The index of an element.
    pub(super) fn at([z, y, x]: [usize; 3]) -> usize {
        (z * SIDE + y) * SIDE + x
    }

    /// The elements, by their index.
    pub(super) fn values(&self) -> &[T] {
        self.rows.as_flattened()
    }

    /// See [`Tile::values`].
    pub(super) fn values_mut(&mut self) -> &mut [T] {
        self.rows.as_flattened_mut()
    }
}

/// Coordinates along an axis: every `step`-th from `first` on.
type Steps = (usize, usize);

/// Computes all elements of a tile but the anchors.
pub(super) struct Fill<'a, T>(pub(super) &'a Dequantize<T>, pub(super) &'a mut Tile<T>);

impl<T: Real> SimdLoop for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl SimdOps) {
        let Self(rules, tile) = self;
        for level in rules.levels.iter().rev() {
            let pass = Pass { tile, level: *level, radius: rules.radius, spline: Spline::of(level) };
            if level.is_multi { pass.all_axes(rules.is_flat) } else { pass.each_axis(rules.is_flat) }
        }
    }
}

struct Pass<'a, T> {
    tile: &'a mut Tile<T>,
    level: SplineLevel<T>,
    radius: T,
    spline: Spline,
}

impl<T: Real> Pass<'_, T> {
    /// Odd, even and all multiples of the unit.
    fn steps(&self) -> [Steps; 3] {
        let u = self.level.unit;
        [(u, 2 * u), (0, 2 * u), (0, u)]
    }

    #[inline(always)]
    fn case(&self, axis: usize, c: usize) -> Case {
        Case::of(c, self.tile.extents[axis], self.level.unit)
    }

    /// Replaces the corrections of a row by values, for `x` of these steps.
    #[inline(always)]
    fn put(&mut self, row: usize, (first, step): Steps, prediction: &TileRow<T>) {
        let mut is_own = [false; SIDE];
        (first..SIDE).step_by(step).for_each(|x| is_own[x] = true);
        let (own, radius, width) = (&mut self.tile.rows[row], self.radius, self.level.width);
        for ((own, prediction), is_own) in own.iter_mut().zip(prediction).zip(&is_own) {
            let value = (*own - radius).fused(width, *prediction).canonical();
            *own = if *is_own { value } else { *own };
        }
    }

    /// The predictions of a row along z or y, at coordinate `c` of this axis.
    #[inline(always)]
    fn across(&self, axis: usize, c: usize, row: usize) -> TileRow<T> {
        let stride = self.level.unit * if axis == 0 { SIDE } else { 1 };
        rows_between(self.case(axis, c), self.spline, |by| {
            let at = row.wrapping_add_signed(by * stride as isize);
            self.tile.rows.get(at).unwrap_or(&self.tile.rows[0])
        })
    }

    /// The predictions of a row along x, for odd multiples of the unit.
    #[inline(always)]
    fn along(&self, row: usize) -> TileRow<T> {
        let unit = self.level.unit;
        let own = &self.tile.rows[row];
        let mut wide = [T::default(); MARGIN + SIDE + MARGIN];
        wide[MARGIN..MARGIN + SIDE].copy_from_slice(own);
        let mut out = rows_between(Case::Cubic, self.spline, |by| {
            let at = MARGIN.wrapping_add_signed(by * unit as isize);
            wide.get(at..).and_then(<[T]>::first_chunk).unwrap_or(own)
        });
        for x in (unit..self.tile.extents[2]).step_by(2 * unit) {
            let case = self.case(2, x);
            if case != Case::Cubic {
                out[x] = between(case, self.spline, |by| wide[(MARGIN + x).wrapping_add_signed(by * unit as isize)]);
            }
        }
        out
    }

    /// The rows with coordinates of these steps: z, y, and the index of the row.
    fn rows(&self, zs: Steps, ys: Steps) -> impl Iterator<Item = (usize, usize, usize)> + use<T> {
        let [nz, ny, _] = self.tile.extents;
        let each = move |z| (ys.0..ny).step_by(ys.1).map(move |y| (z, y, z * SIDE + y));
        (zs.0..nz).step_by(zs.1).flat_map(each)
    }

    /// Predicts along one axis, which has odd coordinates; `steps` are the steps of all axes.
    #[inline(always)]
    fn line(&mut self, axis: usize, [zs, ys, xs]: [Steps; 3]) {
        for (z, y, row) in self.rows(zs, ys) {
            let prediction = match axis {
                0 => self.across(0, z, row),
                1 => self.across(1, y, row),
                _ => self.along(row),
            };
            self.put(row, xs, &prediction);
        }
    }

    /// Three passes along one axis each.
    #[inline(always)]
    fn each_axis(mut self, is_flat: bool) {
        let [odd, even, any] = self.steps();
        if self.level.is_reverse {
            self.line(2, [even, even, odd]);
            self.line(1, [even, odd, any]);
            if !is_flat {
                self.line(0, [odd, any, any]);
            }
        } else {
            if !is_flat {
                self.line(0, [odd, even, even]);
            }
            self.line(1, [any, odd, even]);
            self.line(2, [any, any, odd]);
        }
    }

    /// Three passes: elements with one odd coordinate, with two, with three.
    #[inline(always)]
    fn all_axes(mut self, is_flat: bool) {
        let [odd, even, _] = self.steps();
        self.line(2, [even, even, odd]);
        self.line(1, [even, odd, even]);
        if !is_flat {
            self.line(0, [odd, even, even]);
        }
        for (_, y, row) in self.rows(even, odd) {
            let prediction = self.face_with_x(1, y, row);
            self.put(row, odd, &prediction);
        }
        if is_flat {
            return;
        }
        for (z, _, row) in self.rows(odd, even) {
            let prediction = self.face_with_x(0, z, row);
            self.put(row, odd, &prediction);
        }
        for (z, y, row) in self.rows(odd, odd) {
            let prediction = self.face(z, y, row);
            self.put(row, even, &prediction);
        }
        for (z, y, row) in self.rows(odd, odd) {
            let prediction = self.cube(z, y, row);
            self.put(row, odd, &prediction);
        }
    }

    /// The predictions along z and y: the better one, or the mean.
    #[inline(always)]
    fn face(&self, z: usize, y: usize, row: usize) -> TileRow<T> {
        let ranks = [self.case(0, z).rank(), self.case(1, y).rank()];
        match ranks[0].cmp(&ranks[1]) {
            Ordering::Greater => self.across(0, z, row),
            Ordering::Less => self.across(1, y, row),
            Ordering::Equal => {
                let (first, second) = (self.across(0, z, row), self.across(1, y, row));
                let corner = &self.tile.rows[row - self.level.unit * (SIDE + 1)];
                let is_alone = ranks[0] == 0;
                zip(&first, &second, corner, |a, b, corner| joined(a, b, corner, is_alone))
            }
        }
    }

    /// The predictions along z or y, at coordinate `c`, and x: the better one, or the mean.
    #[inline(always)]
    fn face_with_x(&self, axis: usize, c: usize, row: usize) -> TileRow<T> {
        let (unit, rank) = (self.level.unit, self.case(axis, c).rank());
        let (first, second) = (self.across(axis, c, row), self.along(row));
        let before = &self.tile.rows[row - unit * if axis == 0 { SIDE } else { 1 }];
        let mut out = first;
        for x in (unit..self.tile.extents[2]).step_by(2 * unit) {
            out[x] = match rank.cmp(&self.case(2, x).rank()) {
                Ordering::Greater => first[x],
                Ordering::Less => second[x],
                Ordering::Equal => joined(first[x], second[x], before[x - unit], rank == 0),
            };
        }
        out
    }

    /// The predictions along three axes: the mean of the cubic ones.
    #[inline(always)]
    fn cube(&self, z: usize, y: usize, row: usize) -> TileRow<T> {
        let is_cubic = [(0, z), (1, y)].map(|(axis, c)| self.case(axis, c) == Case::Cubic);
        let (vx, vy, vz) = (self.along(row), self.across(1, y, row), self.across(0, z, row));
        let (half, third) = (T::from_f32(0.5), T::from_f32(3.0));
        // First as if all were cubic along x; the others are replaced below.
        let mut out = match is_cubic {
            [true, true] => zip(&vx, &vy, &vz, |x, y, z| (x + y + z) / third),
            [true, false] => zip(&vx, &vy, &vz, |x, _, z| (x + z) * half),
            [false, true] => zip(&vx, &vy, &vz, |x, y, _| (x + y) * half),
            [false, false] => return vx,
        };
        let unit = self.level.unit;
        for x in (unit..self.tile.extents[2]).step_by(2 * unit) {
            if self.case(2, x) != Case::Cubic {
                out[x] = match is_cubic {
                    [true, true] => (vy[x] + vz[x]) * half,
                    [true, false] => vz[x],
                    _ => vy[x],
                };
            }
        }
        out
    }
}

/// Two predictions of the same rank; `corner` is the value before both.
#[inline(always)]
fn joined<T: Real>(first: T, second: T, corner: T, is_alone: bool) -> T {
    if is_alone { first + second - corner } else { (first + second) * T::from_f32(0.5) }
}

#[inline(always)]
fn zip<T: Real>(a: &TileRow<T>, b: &TileRow<T>, c: &TileRow<T>, f: impl Fn(T, T, T) -> T) -> TileRow<T> {
    let mut out = [T::default(); SIDE];
    for (((out, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
        *out = f(*a, *b, *c);
    }
    out
}
