//! Progress callbacks of decoders that process large buffers.
//!
//! A buffer in a mapped file takes resident memory as it is touched. A decoder that calls its [`Pace`] after every
//! [`STRIDE`] bytes lets the caller release that memory while the decoder runs.
#![forbid(unsafe_code)]

/// Maximum output between two calls of a [`Pace`].
pub const STRIDE: usize = 2 << 20;
/// Rows gathered between two calls: each may touch separate pages.
const ROWS: usize = 64;

/// Callback of a decoder, called after at most [`STRIDE`] bytes of output.
pub type Pace<'a> = &'a mut dyn FnMut();

/// Copies `from` to `to`, which must have the same length.
pub fn copy(from: &[u8], to: &mut [u8], pace: Pace<'_>) {
    for (from, to) in from.chunks(STRIDE).zip(to.chunks_mut(STRIDE)) {
        to.copy_from_slice(from);
        if to.len() == STRIDE {
            pace();
        }
    }
}

/// Fills `to` with `value`.
pub fn fill(to: &mut [u8], value: u8, pace: Pace<'_>) {
    for to in to.chunks_mut(STRIDE) {
        to.fill(value);
        if to.len() == STRIDE {
            pace();
        }
    }
}

/// Reverses a transposition of `rows` rows, for which `undo` turns all of `src` into `dst`; a large one in strides.
/// Bytes after the last whole column are copied.
pub fn undo_transposition(rows: usize, src: &[u8], dst: &mut [u8], pace: Pace<'_>, undo: impl Fn(&[u8], &mut [u8])) {
    let len = src.len().min(dst.len());
    let (src, dst) = (&src[..len], &mut dst[..len]);
    if len <= 2 * STRIDE {
        undo(src, dst);
        return pace();
    }
    let done = undo_columns(rows, src, dst, pace, undo);
    copy(&src[done..], &mut dst[done..], pace);
}

/// Calls `undo` with some columns of all rows of `src`, gathered, and the bytes of `dst` that they become. Returns the
/// number of bytes done: whole columns.
fn undo_columns(rows: usize, src: &[u8], dst: &mut [u8], pace: Pace<'_>, undo: impl Fn(&[u8], &mut [u8])) -> usize {
    let columns = src.len().checked_div(rows).unwrap_or(0);
    let each = (STRIDE / 2 / rows.max(1)).max(1);
    let mut gathered = vec![0; rows * each.min(columns)];
    let mut first = 0;
    while first < columns {
        let n = each.min(columns - first);
        let part = &mut gathered[..rows * n];
        for (row, out) in part.chunks_exact_mut(n).enumerate() {
            let start = row * columns + first;
            out.copy_from_slice(&src[start..start + n]);
            if row % ROWS == ROWS - 1 {
                pace();
            }
        }
        undo(part, &mut dst[rows * first..rows * (first + n)]);
        pace();
        first += n;
    }
    rows * columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::shuffle::tests::noise;
    use super::*;

    /// A function that reverses a shuffle of items of a width, and the same with a pace.
    type Undo = fn(usize, &[u8], &mut [u8]);
    type Paced = fn(usize, &[u8], &mut [u8], Pace<'_>);

    /// Compares `paced` with `undo` for items of `width` bytes in a buffer of `len` bytes.
    pub(in crate::codec) fn check_strides(width: usize, len: usize, undo: Undo, paced: Paced) {
        let bytes = noise(len);
        let (mut want, mut dst, mut calls) = (vec![0; len], vec![0xAA; len], 0);
        undo(width, &bytes, &mut want);
        paced(width, &bytes, &mut dst, &mut || calls += 1);
        assert!(dst == want && calls >= len / STRIDE, "width {width}, {calls} calls");
    }
}
