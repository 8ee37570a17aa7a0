//! What made containers hold: every byte of a file follows from the file's seed and the byte's
//! position, so that a test can tell what any read has to give.

/// Pieces of `slow.raw`.
pub(crate) const SLOW_PIECES: u64 = 8;
/// Pieces of `broken.raw`, and the one of them that fails; in `panics.raw` it panics.
pub(crate) const BROKEN_PIECES: u64 = 4;
/// See [`BROKEN_PIECES`].
pub(crate) const BROKEN: u64 = 2;
/// Bytes of a piece of the slow and broken files.
pub(crate) const SMALL_PIECE: u64 = 256 << 10;
/// Bytes of a file in `many` and `names`.
pub(crate) const SMALL: u64 = 100;

/// Seeds of the files.
pub(crate) const DATA: u64 = 1;
/// See [`DATA`].
pub(crate) const SLOW: u64 = 2;
/// See [`DATA`].
pub(crate) const FRAGILE: u64 = 3;
/// See [`DATA`]; number `n` of `many` and `names` has this plus `n`.
pub(crate) const MANY: u64 = 1000;

/// The bytes of the file with `seed` from `offset` on.
pub(crate) fn fill(seed: u64, offset: u64, dst: &mut [u8]) {
    let mut at = offset;
    let mut rest = dst;
    while !rest.is_empty() {
        let word = mix(seed, at / 8).to_le_bytes();
        let from = (at % 8) as usize;
        let n = rest.len().min(8 - from);
        let (now, later) = rest.split_at_mut(n);
        now.copy_from_slice(&word[from..from + n]);
        rest = later;
        at += n as u64;
    }
}

/// `len` bytes of the file with `seed` from `offset` on.
pub(crate) fn bytes(seed: u64, offset: u64, len: u64) -> Vec<u8> {
    let mut v = vec![0; len as usize];
    fill(seed, offset, &mut v);
    v
}

fn mix(seed: u64, n: u64) -> u64 {
    let mut x = n.wrapping_add(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
