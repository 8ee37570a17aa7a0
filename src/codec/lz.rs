//! Copies for LZ decoders: of fixed size if there is room, exact at the ends.
#![forbid(unsafe_code)]

use super::pace::{Pace, STRIDE};

/// Maximum length of a match that is copied in steps.
const SHORT: usize = 128;
/// Number of bytes after a match that steps may overwrite.
const OVER: usize = 32;

/// `N` bytes of `bytes` from `at` on; `None` if there are fewer.
#[inline]
pub fn window<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// `N` bytes of `bytes` from `at` on; `None` if there are fewer.
#[inline]
pub fn window_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

/// Writes a match at `op` in `dst`: copies the `len` bytes that start `distance` bytes back, one by one, so that a
/// distance shorter than the match repeats bytes just written.
///
/// May overwrite bytes after the match with unspecified values.
///
/// # Errors
/// Fails with a description if the match starts before `dst` or ends after it, or its distance is 0.
#[inline]
pub fn repeat(dst: &mut [u8], op: usize, distance: usize, len: usize) -> Result<(), &'static str> {
    let Some(room) = dst.len().checked_sub(op).filter(|&room| len <= room) else {
        return Err("match past the end of the block");
    };
    if distance == 0 || distance > op {
        return Err("match starts before the block");
    }
    let start = op - distance;
    if len <= SHORT && room >= len + OVER {
        match distance {
            32.. => steps::<32>(dst, start, op, len),
            16.. => steps::<16>(dst, start, op, len),
            8.. => steps::<8>(dst, start, op, len),
            _ => pattern(dst, op, distance, len),
        }
    } else if distance >= len {
        let (head, tail) = dst.split_at_mut(op);
        tail[..len].copy_from_slice(&head[start..start + len]);
    } else {
        overlap(dst, op, distance, len);
    }
    Ok(())
}

/// Like [`repeat`]; calls `pace` along a long match.
///
/// # Errors
/// Like [`repeat`].
#[inline]
pub fn repeat_paced(
    dst: &mut [u8],
    mut op: usize,
    distance: usize,
    mut len: usize,
    pace: Pace<'_>,
) -> Result<(), &'static str> {
    while len > STRIDE {
        repeat(dst, op, distance, STRIDE)?;
        (op, len) = (op + STRIDE, len - STRIDE);
        pace();
    }
    repeat(dst, op, distance, len)
}

/// Copies at least `len` bytes, `N` at a time: a step may read what the previous one wrote.
#[inline]
fn steps<const N: usize>(dst: &mut [u8], from: usize, to: usize, len: usize) {
    let mut done = 0;
    while done < len {
        step::<N>(dst, from + done, to + done);
        done += N;
    }
}

/// Stores `bytes` at `at` if they fit.
#[inline]
pub(super) fn put<const N: usize>(dst: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(out) = window_mut(dst, at) {
        *out = bytes;
    }
}

/// Copies `N` bytes from `from` to `to` if they fit.
#[inline]
pub(super) fn step<const N: usize>(dst: &mut [u8], from: usize, to: usize) {
    if let Some(&bytes) = window::<N>(dst, from) {
        put(dst, to, bytes);
    }
}

/// Copies a match at a distance below 8 by repeating its first bytes in a word. There must be room for an extra word.
#[inline]
fn pattern(dst: &mut [u8], op: usize, distance: usize, len: usize) {
    let Some(&bytes) = window::<8>(dst, op - distance) else { return };
    let mut word = u128::from(u64::from_le_bytes(bytes)) & ((1 << (8 * distance)) - 1);
    let mut period = distance;
    while period < 16 {
        word |= word << (8 * period);
        period *= 2;
    }
    // The whole periods that fit in a word.
    let whole = 16 - 16 % distance;
    let mut done = 0;
    while done < len {
        put(dst, op + done, word.to_le_bytes());
        done += whole;
    }
}

/// Copies a long match that overlaps itself.
fn overlap(dst: &mut [u8], op: usize, distance: usize, len: usize) {
    let start = op - distance;
    if distance == 1 {
        let byte = dst[start];
        dst[op..op + len].fill(byte);
        return;
    }
    let mut done = 0;
    if dst.len() - op >= SHORT + OVER {
        // Begin with several periods, so that few copies remain.
        match distance {
            32.. => {}
            8.. => steps::<8>(dst, start, op, SHORT),
            _ => pattern(dst, op, distance, SHORT),
        }
        done = if distance < 32 { SHORT / distance * distance } else { 0 };
    }
    while done < len {
        // The bytes from `start` on are whole periods, which can be copied at once.
        let n = (distance + done).min(len - done);
        dst.copy_within(start..start + n, op + done);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::{cases, noise};
    use super::*;

    #[test]
    fn a_match_equals_a_bytewise_copy() {
        for distance in cases((1..70).chain([100, 300]), 7) {
            for len in cases((0..70).chain([100, 255, 1000]), 11) {
                for room in cases([0, 1, 7, 8, 31, 32, 100], 3) {
                    let start = noise(distance + 3);
                    let mut want = start.clone();
                    for i in 0..len {
                        want.push(want[3 + i]);
                    }
                    let mut dst = start.clone();
                    dst.resize(want.len() + room, 0xAA);
                    repeat(&mut dst, start.len(), distance, len).unwrap();
                    assert!(dst[..want.len()] == want, "distance {distance}, {len} bytes, room {room}");
                }
            }
        }
    }

    #[test]
    fn matches_outside_the_buffer_are_rejected() {
        let mut dst = [0; 10];
        assert!(repeat(&mut dst, 4, 5, 1).is_err());
        assert!(repeat(&mut dst, 4, 0, 1).is_err());
        assert!(repeat(&mut dst, 4, 4, 7).is_err());
        assert!(repeat(&mut dst, usize::MAX, 1, 1).is_err());
        assert!(repeat(&mut dst, 4, 1, usize::MAX).is_err());
        repeat(&mut dst, 4, 4, 6).unwrap();
    }
}
