//! Merging two sequences of bytes by a bitmap, and unpacking small integers through a table.
//!
//! Both work on bits that fill bytes from bit 0 upward.
#![forbid(unsafe_code)]

/// One of the two sequences of a merge.
#[derive(Debug, Clone, Copy)]
pub enum Side<'a> {
    /// The same byte, as often as it is asked for.
    Byte(u8),
    /// These bytes, one after the other.
    Bytes(&'a [u8]),
}

/// How many of the first `n` bits of `bits` are 1; bits that are not there count as 0.
pub fn ones(bits: &[u8], n: usize) -> usize {
    let bits = bits.get(..n.div_ceil(8)).unwrap_or(bits);
    let (words, rest) = bits.as_chunks::<8>();
    let tail = rest.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    let all: u32 = words.iter().map(|w| u64::from_le_bytes(*w).count_ones()).sum::<u32>() + tail.count_ones();
    // The last byte may hold bits behind the n-th.
    let spare = match (bits.last(), n % 8) {
        (Some(&last), used @ 1..) if bits.len() == n.div_ceil(8) => (last >> used).count_ones(),
        _ => 0,
    };
    (all - spare) as usize
}

/// Fills `out`: where bit `i` of `bits` is 0 with the next byte of `left`, where it is 1 of `right`.
///
/// Where `bits` or a side is too short, the bytes are unspecified.
pub fn merge(bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
    let (mut l, mut r) = (0, 0);
    let take = |side: Side, at: usize| match side {
        Side::Byte(byte) => byte,
        Side::Bytes(bytes) => bytes.get(at).copied().unwrap_or(0),
    };
    for (chunk, &byte) in out.chunks_mut(8).zip(bits) {
        for (k, place) in chunk.iter_mut().enumerate() {
            let one = usize::from(byte >> k & 1);
            *place = if one == 1 { take(right, r) } else { take(left, l) };
            (l, r) = (l + 1 - one, r + one);
        }
    }
}

/// Fills `out` with `table[reverse(group)]` for each group of `width` bits (2 to 8) of `bits`, where
/// `reverse` makes a group's first bit its highest. `table` has `1 << width` entries.
///
/// Where `bits` is too short, the bytes are unspecified.
pub fn unpack(bits: &[u8], width: u32, table: &[u8], out: &mut [u8]) {
    let mut lookup = [0_u8; 256];
    for (group, place) in lookup.iter_mut().enumerate().take(1 << width) {
        let index = (group as u8).reverse_bits() >> (8 - width);
        *place = table.get(usize::from(index)).copied().unwrap_or(0);
    }
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
    use super::*;

    #[test]
    fn ones_counts_the_first_bits_only() {
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
}
