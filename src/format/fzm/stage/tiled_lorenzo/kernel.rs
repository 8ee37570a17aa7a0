//! The loops over tiles: sums, and rows.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};

/// The sums of whole tiles, and their shape.
pub(super) struct TileSums<'a> {
    pub(super) tile: [usize; 3],
    pub(super) sums: &'a mut [i32],
}

/// Replaces the differences in `stored`, of whole tiles, by their sums.
pub(super) fn sum_up<const SIZE: usize>(sums: TileSums, stored: &[u8]) {
    run_widest(SumUp::<SIZE> { sums, stored });
}

struct SumUp<'a, const SIZE: usize> {
    sums: TileSums<'a>,
    stored: &'a [u8],
}

impl<const SIZE: usize> SimdLoop for SumUp<'_, SIZE> {
    type Output = ();

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) {
        let TileSums { tile: [tz, ty, tx], sums } = self.sums;
        for (own, stored) in sums.iter_mut().zip(self.stored.as_chunks::<SIZE>().0) {
            // The upper half of a short element does not reach the lower one.
            let low = u16::from_le_bytes([stored[0], stored[1]]);
            let high = if SIZE == 4 { u16::from_le_bytes([stored[SIZE - 2], stored[SIZE - 1]]) } else { 0 };
            *own = (u32::from(high) << 16 | u32::from(low)) as i32;
        }
        // The corners of planes, then the starts of rows, then the rows.
        let (row, plane) = (tx, tx * ty);
        for own in sums.chunks_exact_mut(tz * plane) {
            let mut corner = 0_i32;
            for plane in own.chunks_exact_mut(plane) {
                corner = corner.wrapping_add(plane[0]);
                let mut start = 0_i32;
                for (y, row) in plane.chunks_exact_mut(row).enumerate() {
                    start = if y == 0 { corner } else { start.wrapping_add(row[0]) };
                    row[0] = start;
                }
            }
        }
        match tx {
            4 => sums.as_chunks_mut::<4>().0.iter_mut().for_each(sum_row),
            _ => vectors.running_sums(sums, tx),
        }
    }
}

/// Replaces a short row by its sums.
#[inline(always)]
fn sum_row([a, b, c, d]: &mut [i32; 4]) {
    let front = a.wrapping_add(*b);
    (*c, *d) = (front.wrapping_add(*c), front.wrapping_add(c.wrapping_add(*d)));
    *b = front;
}

/// Writes the rows of tiles one after the other, without the first elements.
pub(super) struct Rows<'a, I> {
    pub(super) sums: I,
    pub(super) skip: usize,
    pub(super) size: usize,
    pub(super) out: &'a mut [u8],
}

impl<'a, I: Iterator<Item = &'a [i32]>> SimdLoop for Rows<'_, I> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl SimdOps) {
        match self.size {
            2 => self.write(|sum| (sum as u16).to_le_bytes()),
            _ => self.write(i32::to_le_bytes),
        }
    }
}

impl<'a, I: Iterator<Item = &'a [i32]>> Rows<'_, I> {
    #[inline(always)]
    fn write<const SIZE: usize>(self, bytes: impl Fn(i32) -> [u8; SIZE]) {
        let Self { sums, mut skip, out, .. } = self;
        let (mut out, _) = out.as_chunks_mut::<SIZE>();
        for row in sums {
            let row = &row[std::mem::take(&mut skip).min(row.len())..];
            let (own, rest) = out.split_at_mut(row.len().min(out.len()));
            out = rest;
            // Rows of the usual tiles are too short for a loop.
            if let (Ok(row), Ok(own)) = (<&[i32; 8]>::try_from(row), <&mut [[u8; SIZE]; 8]>::try_from(&mut *own)) {
                *own = row.map(&bytes);
            } else if let (Ok(row), Ok(own)) = (<&[i32; 4]>::try_from(row), <&mut [[u8; SIZE]; 4]>::try_from(&mut *own))
            {
                *own = row.map(&bytes);
            } else {
                own.iter_mut().zip(row).for_each(|(own, sum)| *own = bytes(*sum));
            }
        }
    }
}
