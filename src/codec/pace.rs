//! Progress callbacks of decoders that process large buffers.
//!
//! A buffer in a mapped file takes resident memory as it is touched. A decoder that calls its [`Pace`] after every
//! [`STRIDE`] bytes lets the caller release that memory while the decoder runs.
#![forbid(unsafe_code)]

/// Maximum output between two calls of a [`Pace`].
pub const STRIDE: usize = 2 << 20;
/// Rows gathered between two calls: each may touch pages of its own.
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

/// Reverses a transposition of `rows` rows in strides: `undo` gets some columns of all rows of `src`, gathered, and the
/// bytes of `dst` that they become. Returns how many bytes were done: those of whole columns.
pub fn transpose(rows: usize, src: &[u8], dst: &mut [u8], pace: Pace<'_>, undo: impl Fn(&[u8], &mut [u8])) -> usize {
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
