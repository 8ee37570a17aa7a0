//! Merging two byte sequences by a bitmap, repeating bytes by one, and unpacking small integers through a table.
//!
//! In all of them, bits are taken from each byte starting with bit 0.
#![forbid(unsafe_code)]

pub use super::merge_side::Side;

/// Number of ones among the first `n` bits of `bits`; missing bits count as 0.
pub fn ones(bits: &[u8], n: usize) -> usize {
    let bits = bits.get(..n.div_ceil(8)).unwrap_or(bits);
    let (words, rest) = bits.as_chunks::<8>();
    let tail = rest.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    let all: u32 = words.iter().map(|w| u64::from_le_bytes(*w).count_ones()).sum::<u32>() + tail.count_ones();
    // The last byte may contain bits after the n-th.
    let spare = match (bits.last(), n % 8) {
        (Some(&last), used @ 1..) if bits.len() == n.div_ceil(8) => (last >> used).count_ones(),
        _ => 0,
    };
    (all - spare) as usize
}

/// Fills `out`: if bit `i` of `bits` is 0, with the next byte of `left`; if it is 1, with the next byte of `right`.
///
/// If `bits` or a side is too short, the bytes are unspecified.
pub fn merge(bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = super::merging::Kernels::get() {
        return kernels.merge::<1>(bits, left, right, out);
    }
    merge_portable(bits, left, right, out);
}

fn merge_portable(bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
    let (mut l, mut r) = (0, 0);
    // The next eight bytes of a side: one byte of `bits` consumes no more.
    let eight = |side: Side, at: usize| match side {
        Side::Byte(byte) => u64::from_le_bytes([byte; 8]),
        Side::Bytes(bytes) => {
            let rest = bytes.get(at..).unwrap_or_default();
            u64::from_le_bytes(rest.first_chunk().copied().unwrap_or_else(|| {
                let mut last = [0; 8];
                last[..rest.len()].copy_from_slice(rest);
                last
            }))
        }
    };
    for (chunk, &byte) in out.chunks_mut(8).zip(bits) {
        let merged = match byte {
            0 => eight(left, l),
            0xFF => eight(right, r),
            _ => spread(!byte, eight(left, l)) | spread(byte, eight(right, r)),
        };
        let merged = merged.to_le_bytes();
        match chunk.first_chunk_mut() {
            Some(chunk) => *chunk = merged,
            None => chunk.copy_from_slice(&merged[..chunk.len()]),
        }
        let ones = byte.count_ones() as usize;
        (l, r) = (l + 8 - ones, r + ones);
    }
}

/// Distributes the bytes of `data`, lowest first, to the positions of the bits set in `mask`; zeros elsewhere.
fn spread(mask: u8, data: u64) -> u64 {
    let [used, by4, by2, by1] = MOVES[usize::from(mask)];
    let mut x = data & used;
    for (moves, shift) in [(by4, 32), (by2, 16), (by1, 8)] {
        let moved = x & moves;
        x = (x ^ moved) | (moved << shift);
    }
    x
}

/// For each mask: the bytes of data that are used, and the bytes that move up by 4, then 2, then 1.
///
/// The byte for the j-th set bit, at position p, moves p - j places. This number never decreases from one byte to the
/// next, so no byte is moved onto one that stays.
const MOVES: [[u64; 4]; 256] = {
    let mut table = [[0; 4]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut position, mut j) = (0, 0);
        while position < 8 {
            if mask >> position & 1 == 1 {
                let way = position - j;
                table[mask][0] |= 0xFF << (8 * j);
                // Position of the byte before the moves of 4, 2 and 1.
                let before = [j, j + (way & 4), j + (way & 6)];
                let mut i = 0;
                while i < 3 {
                    if way & (4 >> i) != 0 {
                        table[mask][i + 1] |= 0xFF << (8 * before[i]);
                    }
                    i += 1;
                }
                j += 1;
            }
            position += 1;
        }
        mask += 1;
    }
    table
};

/// Fills `out`: if bit `i` of `bits` is 1, with the next of `bytes`; if it is 0, with the byte before it again, at the
/// start with 0.
///
/// If `bits` or `bytes` is too short, the bytes are unspecified.
pub fn repeat_last(bits: &[u8], bytes: &[u8], out: &mut [u8]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = super::merging::Kernels::get() {
        return kernels.repeat_last::<1>(bits, bytes, out);
    }
    repeat_last_portable(bits, bytes, out);
}

fn repeat_last_portable(bits: &[u8], bytes: &[u8], out: &mut [u8]) {
    let (mut at, mut last) = (0, 0);
    for (own, &mask) in out.chunks_mut(8).zip(bits) {
        if mask == 0 {
            own.fill(last);
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let mut choice = [last; 16];
        match rest.first_chunk::<8>() {
            Some(next) => choice[1..9].copy_from_slice(next),
            None => choice[1..=rest.len()].copy_from_slice(rest),
        }
        let mut seen = 0;
        for (i, own) in own.iter_mut().enumerate() {
            seen += usize::from(mask >> i & 1);
            *own = choice[seen & 15];
        }
        last = choice[seen & 15];
        at += seen;
    }
}

/// Fills `out` with `table[reverse(group)]` for each group of `width` bits (2 to 8) of `bits`, where
/// `reverse` makes the first bit of a group its highest. `table` has `1 << width` entries.
///
/// If `bits` is too short, the bytes are unspecified.
pub fn unpack(bits: &[u8], width: u32, table: &[u8], out: &mut [u8]) {
    let mut lookup = [0_u8; 256];
    for (group, place) in lookup.iter_mut().enumerate().take(1 << width) {
        let index = (group as u8).reverse_bits() >> (8 - width);
        *place = table.get(usize::from(index)).copied().unwrap_or(0);
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if width < 8
        && let Some(lookup) = lookup.first_chunk()
        && let Some(kernels) = super::merging::Kernels::get()
    {
        return kernels.unpack(bits, width, lookup, out);
    }
    unpack_portable(bits, width, &lookup, out);
}

fn unpack_portable(bits: &[u8], width: u32, lookup: &[u8; 256], out: &mut [u8]) {
    let mask = (1_u64 << width) - 1;
    for (eight, packed) in out.chunks_mut(8).zip(bits.chunks(width as usize)) {
        let mut word = packed.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
        for place in eight {
            *place = lookup[(word & mask) as usize];
            word >>= width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::cases;
    use super::*;

    #[test]
    fn ones_counts_only_the_first_bits() {
        let bits = [0xFF, 0x0F, 0xF0, 0, 0, 0, 0, 0x80, 0xFF];
        for (n, want) in [
            (0, 0),
            (3, 3),
            (8, 8),
            (12, 12),
            (16, 12),
            (20, 12),
            (24, 16),
            (63, 16),
            (64, 17),
            (65, 18),
            (72, 25),
            (90, 25),
        ] {
            assert_eq!(ones(&bits, n), want, "{n} bits");
        }
    }

    #[test]
    fn spread_puts_the_next_byte_at_each_bit() {
        for mask in 0..=255_u8 {
            let mut next = 1..;
            let want: [u8; 8] = std::array::from_fn(|i| if mask >> i & 1 == 1 { next.next().unwrap() } else { 0 });
            assert_eq!(spread(mask, 0x0807_0605_0403_0201).to_le_bytes(), want, "{mask:#b}");
        }
    }

    /// Bytes with a long period.
    fn noise(n: usize, seed: u32) -> Vec<u8> {
        (0..n as u32).map(|i| (i ^ seed).wrapping_mul(2_654_435_761).wrapping_add(i >> 3).to_be_bytes()[1]).collect()
    }

    #[test]
    fn merge_takes_each_byte_from_the_side_that_its_bit_selects() {
        for n in cases((0..200_usize).chain([1000, 4099]), 29) {
            let bits = noise(n.div_ceil(8), 1);
            let ones = ones(&bits, n);
            let (a, b) = (noise(n - ones, 2), noise(ones, 3));
            let sides = [
                (Side::Bytes(&a), Side::Bytes(&b)),
                (Side::Byte(7), Side::Bytes(&b)),
                (Side::Bytes(&a), Side::Byte(9)),
            ];
            for (left, right) in sides.into_iter().chain([(Side::Byte(1), Side::Byte(2))]) {
                let mut at = [0, 0];
                let want: Vec<u8> = (0..n)
                    .map(|i| {
                        let side = usize::from(bits[i / 8] >> (i % 8) & 1);
                        at[side] += 1;
                        match [left, right][side] {
                            Side::Byte(byte) => byte,
                            Side::Bytes(bytes) => bytes[at[side] - 1],
                        }
                    })
                    .collect();
                let (mut got, mut portable) = (vec![0xAA; n], vec![0xAA; n]);
                merge(&bits, left, right, &mut got);
                merge_portable(&bits, left, right, &mut portable);
                assert!(got == want && portable == want, "{n} bytes, {left:?}, {right:?}");
            }
        }
    }

    #[test]
    fn repeat_last_takes_the_next_byte_at_each_bit() {
        for n in cases((0..200_usize).chain([1000, 4099]), 29) {
            for mask in [0, 0x11, 0x80, 0xFF] {
                let bits: Vec<u8> = noise(n.div_ceil(8), 1).into_iter().map(|b| b & mask).collect();
                let bytes = noise(ones(&bits, n), 2);
                let (mut next, mut last) = (bytes.iter(), 0);
                let want: Vec<u8> = (0..n)
                    .map(|i| {
                        if bits[i / 8] >> (i % 8) & 1 == 1 {
                            last = *next.next().unwrap();
                        }
                        last
                    })
                    .collect();
                let (mut got, mut portable) = (vec![0xAA; n], vec![0xAA; n]);
                repeat_last(&bits, &bytes, &mut got);
                repeat_last_portable(&bits, &bytes, &mut portable);
                assert!(got == want && portable == want, "{n} bytes, bits {mask:#x}");
            }
        }
    }

    #[test]
    fn unpack_looks_up_every_group() {
        for width in 2..=8_u32 {
            let table = noise(1 << width, 4);
            for n in cases((0..200_usize).chain([1000, 4099]), 29) {
                let bits = noise((n * width as usize).div_ceil(8), width);
                let bit = |i: usize| usize::from(bits[i / 8] >> (i % 8) & 1);
                let group = |i: usize| (0..width as usize).fold(0, |g, j| g << 1 | bit(i * width as usize + j));
                let want: Vec<u8> = (0..n).map(|i| table[group(i)]).collect();
                let mut got = vec![0xAA; n];
                unpack(&bits, width, &table, &mut got);
                assert!(got == want, "{n} groups of {width}");
                let mut lookup = [0; 256];
                for (group, place) in lookup.iter_mut().enumerate().take(1 << width) {
                    *place = table[usize::from((group as u8).reverse_bits() >> (8 - width))];
                }
                unpack_portable(&bits, width, &lookup, &mut got);
                assert!(got == want, "{n} groups of {width}, portable");
            }
        }
    }

    #[test]
    fn short_sides_and_bits_do_not_panic() {
        let mut out = [0; 300];
        merge(&[0xFF; 3], Side::Bytes(&[1]), Side::Bytes(&[2; 5]), &mut out);
        merge_portable(&[0xFF; 3], Side::Bytes(&[1]), Side::Bytes(&[2; 5]), &mut out);
        repeat_last(&[0xFF; 3], &[1; 5], &mut out);
        repeat_last_portable(&[0xFF; 3], &[1; 5], &mut out);
        unpack(&[1, 2, 3], 7, &[5; 128], &mut out);
        unpack(&[], 3, &[], &mut out);
    }
}
