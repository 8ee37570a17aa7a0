//! Unchecked LZ copies; callers check bounds once per sequence or batch.
//!
//! Checked: nothing; each function states its requirements.
#![expect(unsafe_code, reason = "one check for all copies of a sequence")]

use super::simd_dispatch::SimdOps;

/// Size of a word.
pub(super) const WORD: usize = 16;
/// Size of a step.
pub(super) const STEP: usize = 32;

/// For each distance below a step, its largest multiple that is at most a step.
const STRIDES: [u8; STEP] = {
    let mut strides = [1; STEP];
    let mut off = 1;
    while off < STEP {
        strides[off] = (STEP - STEP % off) as u8;
        off += 1;
    }
    strides
};

/// For each period, the index within it of the byte at position [`WORD`]; for a period of a word, the next word.
const SKIPS: [u8; WORD + 1] = {
    let mut skips = [WORD as u8; WORD + 1];
    let mut period = 1;
    while period < WORD {
        skips[period] = (WORD % period) as u8;
        period += 1;
    }
    skips
};

/// # Safety
/// `from` must be valid for reads of `N` bytes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn read<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: guaranteed by the caller.
    unsafe { from.cast::<[u8; N]>().read_unaligned() }
}

/// # Safety
/// `to` must be valid for writes of `N` bytes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn write<const N: usize>(to: *mut u8, bytes: [u8; N]) {
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<[u8; N]>().write_unaligned(bytes) }
}

/// Copies `len` bytes and up to a step more, in steps, at least one.
///
/// # Safety
/// `from` must be valid for reads of `len` bytes and a step, and `to` for writes of as many.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn steps(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy(from, to, STEP) };
    let mut done = STEP;
    while done < len {
        let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
        // SAFETY: `done` is less than `len`, and both are valid for `len` bytes and a step.
        unsafe { std::ptr::copy(from, to, STEP) };
        done += STEP;
    }
}

/// Repeats the `off` bytes (1 to 31) before `to` for `len` bytes and up to a step more.
///
/// # Safety
/// `to` must be valid for writes of `len` bytes and a step, and the `off` bytes before it for reads.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
unsafe fn periods(vectors: impl SimdOps, to: *mut u8, off: usize, len: usize) {
    // SAFETY: guaranteed by the caller; the bytes at `to` are readable too.
    let bytes: [u8; STEP] = vectors.repeat(&unsafe { read(to.wrapping_sub(off)) }, off);
    let stride = usize::from(STRIDES[off % STEP]);
    let mut done = 0;
    while done < len {
        // SAFETY: `done` is less than `len`, and `to` is valid for `len` bytes and a step.
        unsafe { write(to.wrapping_add(done), bytes) };
        done += stride;
    }
}

/// Repeats the `off` bytes before `to` for `len` bytes and up to a step more.
///
/// # Safety
/// As for [`periods`], for any `off` of at least 1.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn copy_overlap(vectors: impl SimdOps, to: *mut u8, off: usize, len: usize) {
    if off >= STEP {
        // SAFETY: guaranteed by the caller; each step reads at least a step before what it writes.
        unsafe { steps(to.wrapping_sub(off), to, len) };
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { periods(vectors, to, off, len) };
    }
}

/// Writes a word and `MORE` bytes: repetitions of the `off` bytes before `to`.
///
/// `GUESSED` adds a branch for distances of at least a word. This pays if shorter ones are rare or come in runs, so
/// that the branch is predictable.
///
/// # Safety
/// `to` must be valid for writes of that many bytes, and the `off` bytes before it (at least 1) for reads.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn word_and<const MORE: usize, const GUESSED: bool>(vectors: impl SimdOps, to: *mut u8, off: usize) {
    let from = to.wrapping_sub(off);
    // SAFETY: guaranteed by the caller; the bytes at `to` are readable too.
    let bytes = unsafe { read::<WORD>(from) };
    // The next bytes equal the bytes a whole number of periods back. For a short period, their load need not wait for
    // the store above.
    let (bytes, skip) = if GUESSED && off >= WORD {
        (bytes, WORD)
    } else {
        let period = off.min(WORD);
        (vectors.repeat16(&bytes, period), SKIPS[period].into())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { write(to, bytes) };
    // SAFETY: as above.
    let more = unsafe { read::<MORE>(from.wrapping_add(skip)) };
    // SAFETY: guaranteed by the caller.
    unsafe { write(to.wrapping_add(WORD), more) };
}
