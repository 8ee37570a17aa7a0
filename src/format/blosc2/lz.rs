//! Copies of the LZ decoders: fixed windows where there is room, exact ones at the ends.
#![forbid(unsafe_code)]

/// The `N` bytes of `bytes` from `at` on.
#[inline]
pub(super) fn window<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// The `N` bytes of `bytes` from `at` on.
#[inline]
pub(super) fn window_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

/// Appends to the first `op` bytes of `dst` the `len` bytes from `distance` (not 0) back, one by one.
///
/// May write unspecified bytes behind them.
#[inline]
pub(super) fn repeat(dst: &mut [u8], op: usize, distance: usize, len: usize) -> Result<(), &'static str> {
    if distance == 0 || len > dst.len().saturating_sub(op) {
        return Err("a match beyond the block");
    }
    let Some((head, tail)) = dst.split_at_mut_checked(op) else { return Err("a match beyond the block") };
    let Some(start) = op.checked_sub(distance) else { return Err("a match from before the block") };
    let from = &head[start..];
    if distance >= 32
        && len <= 32
        && let (Some(from), Some(to)) = (from.first_chunk::<32>(), tail.first_chunk_mut::<32>())
    {
        *to = *from;
        return Ok(());
    }
    if distance >= len {
        tail[..len].copy_from_slice(&from[..len]);
    } else {
        overlap(dst, op, distance, len);
    }
    Ok(())
}

/// A match that repeats itself: grown from its own copies.
fn overlap(dst: &mut [u8], op: usize, distance: usize, len: usize) {
    let start = op - distance;
    if distance == 1 {
        let byte = dst[start];
        dst[op..op + len].fill(byte);
        return;
    }
    let mut done = 0;
    while done < len {
        // What is there, from `start` on, is a whole number of periods and can be copied whole.
        let n = (distance + done).min(len - done);
        dst.copy_within(start..start + n, op + done);
        done += n;
    }
}
