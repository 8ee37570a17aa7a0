//! The order of the codes: one grid after the other, the coarsest first, each without the elements of coarser ones.
//!
//! Grid `l` has the elements with coordinates that are all multiples of `2^l`, in raster order.
#![forbid(unsafe_code)]

/// The order of the codes of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grids {
    /// Slowest first.
    dims: [u64; 3],
}

impl Grids {
    pub(super) fn new(dims: [u64; 3]) -> Self {
        Self { dims }
    }

    /// Elements of grid `level` per dimension, slowest first.
    fn extents(&self, level: usize) -> [u64; 3] {
        self.dims.map(|n| n.div_ceil(1 << level))
    }

    /// The index of the code of an element of grid `level` that is in no coarser one. Coordinates are in units of the
    /// grid.
    pub(super) fn index(&self, level: usize, [z, y, x]: [u64; 3]) -> u64 {
        let ([_, ny, nx], [cz, cy, cx]) = (self.extents(level), self.extents(level + 1));
        let own = cz * cy * cx + (z * ny + y) * nx + x;
        // Elements before it that are in the coarser grid.
        let mut before = z.div_ceil(2) * cy * cx;
        if z.is_multiple_of(2) {
            before += y.div_ceil(2) * cx;
            if y.is_multiple_of(2) {
                before += x.div_ceil(2);
            }
        }
        own - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_the_order_of_their_grids() {
        for dims in [[1, 2, 1], [1, 33, 20], [5, 17, 3], [18, 9, 33]] {
            let grids = Grids::new(dims);
            let [nz, ny, nx] = dims;
            let in_grid = |level: usize, at: [u64; 3]| at.iter().all(|n| n.is_multiple_of(1 << level));
            let mut next = grids.extents(4).iter().product::<u64>();
            for level in (0..4).rev() {
                for (z, y) in (0..nz).flat_map(|z| (0..ny).map(move |y| (z, y))) {
                    for x in (0..nx).filter(|&x| in_grid(level, [z, y, x]) && !in_grid(level + 1, [z, y, x])) {
                        assert_eq!(grids.index(level, [z, y, x].map(|n| n >> level)), next, "{dims:?} {z} {y} {x}");
                        next += 1;
                    }
                }
            }
            assert_eq!(next, nz * ny * nx);
        }
    }
}
