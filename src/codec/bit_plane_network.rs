//! [`super::bit_planes`] for any processor: a network of exchanges over 64-bit words, of bits between the planes, then
//! of elements between the words.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the parts of the network are unrolled into one kernel per width")]

/// Bytes of a plane that are processed together.
pub const LINE: usize = 64;

/// Words of a plane that are processed together, so that the compiler vectorizes.
const LANES: usize = 4;

/// The elements of one line of each plane.
#[inline(always)]
pub(super) fn portable<const WIDTH: usize>(planes: [&[u8; LINE]; WIDTH], out: &mut [[u8; LINE]; WIDTH]) {
    let batch = 8 * LANES;
    for (at, out) in (0..LINE).step_by(batch).zip(out.as_flattened_mut().chunks_exact_mut(batch * WIDTH)) {
        let mut words = [[0; LANES]; WIDTH];
        for (plane, words) in planes.iter().zip(words.iter_mut().rev()) {
            let (bits, _) = plane[at..].as_chunks::<8>();
            for (word, bits) in words.iter_mut().zip(bits) {
                *word = u64::from_le_bytes(*bits);
            }
        }
        network(&mut words);
        store(&words, out);
    }
}

/// On entry word `q` holds bit `q` of 64 elements. On return the words hold the elements: with `f` elements in a word,
/// word `f*q + g`, lane `l` holds those from `(f*l + g) * WIDTH + f*q`.
#[inline(always)]
fn network<const WIDTH: usize>(words: &mut [[u64; LANES]; WIDTH]) {
    // Exchange bits within a field with words.
    let mut step = WIDTH / 2;
    while step > 0 {
        exchange(words, step, step);
        step /= 2;
    }
    if WIDTH >= 32 {
        // Planes of wide elements have their first element in the highest bit.
        words.reverse();
    }
    // Exchange fields within a word with words.
    let mut step = 64 / WIDTH / 2;
    while step > 0 {
        exchange(words, step, step * WIDTH);
        step /= 2;
    }
}

/// Exchanges the upper `shift` bits of each field of a word with the lower `shift` bits of the word `step` after it.
#[inline(always)]
fn exchange<const WIDTH: usize>(words: &mut [[u64; LANES]; WIDTH], step: usize, shift: usize) {
    // Alternating runs of `shift` ones and `shift` zeros, from the lowest bit.
    let mask = u64::MAX / ((1 << shift) + 1);
    for pair in words.chunks_exact_mut(2 * step) {
        let (low, high) = pair.split_at_mut(step);
        for (low, high) in low.iter_mut().zip(high) {
            for (low, high) in low.iter_mut().zip(high) {
                let differ = ((*low >> shift) ^ *high) & mask;
                *high ^= differ;
                *low ^= differ << shift;
            }
        }
    }
}

/// Writes the result of [`network`] in element order.
#[inline(always)]
fn store<const WIDTH: usize>(words: &[[u64; LANES]; WIDTH], out: &mut [u8]) {
    let fields = 64 / WIDTH;
    let (slots, _) = out.as_chunks_mut::<8>();
    for (i, lanes) in words.iter().enumerate() {
        for (lane, word) in lanes.iter().enumerate() {
            slots[(fields * lane + i % fields) * (WIDTH / fields) + i / fields] = word.to_le_bytes();
        }
    }
}
