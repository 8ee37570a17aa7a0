//! Integers of equal width in a string of bits, lowest bit first, to little-endian words of 1, 2, 4 or 8 bytes.
#![forbid(unsafe_code)]

/// Fills `out` with words of `W` bytes (1, 2, 4 or 8): the integers of `width` bits, at most `8 * W`, that start at bit
/// `at` of `bits`. Bits after the end are 0.
///
/// # Examples
/// ```
/// let mut out = [0_u8; 6];
/// fzmfs::codec::bit_fields::unpack::<2>(&[0b1101_0001, 1], 1, 3, &mut out);
/// assert_eq!(out, [0, 0, 5, 0, 3, 0]);
/// ```
pub fn unpack<const W: usize>(bits: &[u8], at: usize, width: u32, out: &mut [u8]) {
    let width = width.min(8 * W as u32);
    let skip = (at % 8) as u32;
    let bits = bits.get(at / 8..).unwrap_or_default();
    let group = 8 / W as u32 * width;
    match group {
        0 => out.fill(0),
        // From any bit of a byte, 57 bits are in the next eight bytes.
        1..=57 => groups::<W>(bits, skip, width, out, load),
        _ => groups::<W>(bits, skip, width, out, load_long),
    }
}

/// Fills `out`, eight bytes of words at a time, from the integers of `width` bits that start at bit `at`.
fn groups<const W: usize>(bits: &[u8], at: u32, width: u32, out: &mut [u8], load: impl Fn(&[u8], usize) -> u64) {
    let spread = Spread::new::<W>(width);
    let (mut at, group) = (at as usize, (8 / W as u32 * width) as usize);
    let (eights, rest) = out.as_chunks_mut::<8>();
    for own in eights {
        *own = spread.words::<W>(load(bits, at)).to_le_bytes();
        at += group;
    }
    let last = spread.words::<W>(load(bits, at)).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// How the integers of a group move to their words: in each step, the upper half of every group moves up.
struct Spread {
    /// Per step: the distance, and the masks of the halves that stay and that move.
    steps: [(u32, u64, u64); 3],
}

impl Spread {
    /// For integers of `width` bits, at least 1, and words of `W` bytes.
    fn new<const W: usize>(width: u32) -> Self {
        // A half is 32 bits long, then 16, then 8.
        let step = |half: u32| {
            let used = (half / (8 * W as u32)) * width;
            let ones = u64::MAX >> (64 - used.clamp(1, 32));
            let halves = (0..64 / (2 * half)).fold(0, |mask, i| mask | ones << (2 * half * i));
            (half - used, halves, halves << half)
        };
        match W {
            8 => Self { steps: [(0, u64::MAX >> (64 - width.clamp(1, 64)), 0); 3] },
            _ => Self { steps: [step(32), step(16), step(8)] },
        }
    }

    /// The words of a group; bits above it are ignored.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the inner loop")]
    fn words<const W: usize>(&self, group: u64) -> u64 {
        let count = match W {
            1 => 3,
            2 => 2,
            _ => 1,
        };
        self.steps[..count].iter().fold(group, |x, &(by, stay, moved)| (x & stay) | (x << by & moved))
    }
}

/// At least 57 bits from bit `at` on.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the inner loop")]
fn load(bits: &[u8], at: usize) -> u64 {
    eight(bits, at / 8) >> (at % 8)
}

/// The 64 bits from bit `at` on.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the inner loop")]
fn load_long(bits: &[u8], at: usize) -> u64 {
    let next = bits.get(at / 8 + 8).copied().unwrap_or(0);
    eight(bits, at / 8) >> (at % 8) | u64::from(next) << 1 << (63 - at % 8)
}

/// The eight bytes at `at`, with zeros after the end.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the inner loop")]
fn eight(bits: &[u8], at: usize) -> u64 {
    let rest = bits.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const W: usize>() {
        let bits: Vec<u8> =
            (0..4000_u32).map(|i| i.wrapping_mul(2_654_435_761).rotate_left(i % 32).to_be_bytes()[0]).collect();
        let bit = |i: usize| bits.get(i / 8).map_or(0, |byte| u64::from(byte >> (i % 8) & 1));
        for width in 0..=8 * W as u32 {
            for at in [0, 1, 5, 7, 8, 27] {
                for n in [0, 1, 2, 3, 7, 8, 9, 31, 100] {
                    let value =
                        |i: usize| (0..width as usize).rev().fold(0, |x, b| x << 1 | bit(at + i * width as usize + b));
                    let want: Vec<u8> = (0..n).flat_map(|i| value(i).to_le_bytes()[..W].to_vec()).collect();
                    let mut out = vec![0xAA; n * W];
                    unpack::<W>(&bits, at, width, &mut out);
                    assert!(out == want, "{n} words of {W} bytes from {width} bits at {at}");
                }
            }
        }
        let mut out = [0xAA; 64];
        unpack::<W>(&[0xFF; 3], 5, 7, &mut out);
        assert_eq!(out.iter().map(|byte| byte.count_ones()).sum::<u32>(), 19);
        unpack::<W>(&[], 100, 8, &mut out);
        assert_eq!(out, [0; 64]);
    }

    #[test]
    fn every_width_unpacks_from_every_bit_to_every_word() {
        check::<1>();
        check::<2>();
        check::<4>();
        check::<8>();
    }
}
