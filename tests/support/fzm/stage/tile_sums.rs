//! Sums over the tiles of `LorenzoQuant` (section 5.1), in the order of the reference.

use crate::elements::Real;

/// One tile of 1024: 8 warps of 32 lanes of 4 elements.
pub(crate) fn sum_rank1(real: Real, tile: &mut [f64]) {
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
pub(crate) fn sum_rank2(real: Real, band: &mut [f64], nx: usize) {
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
pub(crate) fn sum_rank3(real: Real, band: &mut [f64], nx: usize, ny: usize) {
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
