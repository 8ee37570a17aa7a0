//! Bit planes to elements: plane by plane, the bits of all elements, the plane of the highest bits first.
//!
//! Bit `i % 8` of byte `i / 8` of a plane belongs to element `i` if elements have 8 or 16 bits. Wider elements are
//! grouped, as many as they have bits, and each group is stored backwards.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of kernels")]

pub use super::bit_plane_network::LINE;
use super::simd_ops::{SimdLoop, SimdOps};

/// Fills `out` with the elements of `WIDTH` bits (8, 16, 32 or 64) of equally long `planes`, from byte `from` of each
/// plane.
///
/// Returns false if it did not fill `out`: the planes must have that many bytes, a multiple of [`LINE`] of each.
#[inline(always)]
pub fn elements<const WIDTH: usize>(vectors: impl SimdOps, planes: &[u8], from: usize, out: &mut [u8]) -> bool {
    let stride = planes.len() / WIDTH;
    let (lines, rest) = out.as_chunks_mut::<LINE>();
    if stride == 0 || !planes.len().is_multiple_of(WIDTH) || !lines.len().is_multiple_of(WIDTH) || !rest.is_empty() {
        return lines.is_empty() && rest.is_empty();
    }
    for (at, out) in (from..).step_by(LINE).zip(lines.as_chunks_mut::<WIDTH>().0) {
        let mut own = [&[0; LINE]; WIDTH];
        for (own, plane) in own.iter_mut().zip(planes.chunks_exact(stride)) {
            let Some(bits) = plane.get(at..).and_then(<[u8]>::first_chunk) else { return false };
            *own = bits;
        }
        vectors.elements(own, out);
    }
    true
}

/// [`elements`] as a loop.
#[derive(Debug)]
pub struct Elements<'a, const WIDTH: usize> {
    /// The planes.
    pub planes: &'a [u8],
    /// The first byte of each plane.
    pub from: usize,
    /// Where the elements go.
    pub out: &'a mut [u8],
}

impl<const WIDTH: usize> SimdLoop for Elements<'_, WIDTH> {
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        elements::<WIDTH>(vectors, self.planes, self.from, self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::noise;
    use super::super::simd_dispatch::{Portable, run, run_widest};
    use super::*;

    /// The definition, bit by bit.
    fn element_bits(planes: &[u8], width: usize) -> Vec<u8> {
        let (stride, mut out) = (planes.len() / width, vec![0; planes.len()]);
        for (plane, bits) in planes.chunks_exact(stride).enumerate() {
            for i in 0..8 * stride {
                let element = if width < 32 { i } else { i / width * width + (width - 1 - i % width) };
                let to = element * width + (width - 1 - plane);
                out[to / 8] |= (bits[i / 8] >> (i % 8) & 1) << (to % 8);
            }
        }
        out
    }

    fn agree<const WIDTH: usize>() {
        let planes = noise(WIDTH * 6 * LINE);
        let want = element_bits(&planes, WIDTH);
        for (from, lines) in [(0, 6), (LINE, 3), (5 * LINE, 1)] {
            let (mut plain, mut some, mut wide) = ([0; 3]).map(|_| vec![0xAA; WIDTH * lines * LINE]).into();
            let elements = |out| Elements::<WIDTH> { planes: &planes, from, out };
            assert!(elements(&mut plain).run(Portable) && run(elements(&mut some)) && run_widest(elements(&mut wide)));
            let want = &want[from * WIDTH..][..plain.len()];
            assert!(plain == want && some == want && wide == want, "{WIDTH} planes from byte {from}");
        }
    }

    #[test]
    fn every_copy_of_the_kernel_gives_the_elements() {
        agree::<8>();
        agree::<16>();
        if !cfg!(miri) {
            agree::<32>();
            agree::<64>();
        }
    }

    #[test]
    fn planes_of_another_length_than_the_output_are_an_error() {
        for (planes, from, out) in
            [(1024, 0, 2048), (2048, 64, 2048), (512, 0, 512), (1040, 0, 1040), (1000, 0, 1000), (0, 0, 1024)]
        {
            let done = run_widest(Elements::<16> { planes: &vec![1; planes], from, out: &mut vec![0; out] });
            assert!(!done, "{planes} {from} {out}");
        }
    }
}
