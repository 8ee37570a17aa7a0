//! Copies of LZ decoders that look at no end: who calls them has looked, once for several.
//!
//! Checked: nothing; each says what has to hold.
#![expect(unsafe_code, reason = "one check for all copies of a sequence")]

use super::kernel::Vectors;

/// Bytes of a word.
pub(super) const WORD: usize = 16;
/// Bytes of a step.
pub(super) const STEP: usize = 32;

/// For each distance under a step, the largest multiple of it that is not more than a step.
const STRIDES: [u8; STEP] = {
    let mut strides = [1; STEP];
    let mut off = 1;
    while off < STEP {
        strides[off] = (STEP - STEP % off) as u8;
        off += 1;
    }
    strides
};

/// For each period, of which byte of it the one behind a word is a copy; behind a period of a word comes the next word.
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
/// `from` is valid for reads of `N` bytes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn read<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: the caller's.
    unsafe { from.cast::<[u8; N]>().read_unaligned() }
}

/// # Safety
/// `to` is valid for writes of `N` bytes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn write<const N: usize>(to: *mut u8, bytes: [u8; N]) {
    // SAFETY: the caller's.
    unsafe { to.cast::<[u8; N]>().write_unaligned(bytes) }
}

/// Copies `len` bytes and up to a step more, step by step, the first in any case.
///
/// # Safety
/// `from` is valid for reads of `len` bytes and a step, and `to` for writes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn steps(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { std::ptr::copy(from, to, STEP) };
    let mut done = STEP;
    while done < len {
        let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
        // SAFETY: `done` is less than `len`, and a step lies behind `len` bytes of both.
        unsafe { std::ptr::copy(from, to, STEP) };
        done += STEP;
    }
}

/// Repeats the `off` bytes (1 to 31) before `to` until there are `len`, and up to a step more.
///
/// # Safety
/// `to` is valid for writes of `len` bytes and a step, and the `off` bytes before it for reads.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
unsafe fn periods(vectors: impl Vectors, to: *mut u8, off: usize, len: usize) {
    // SAFETY: the caller's; what lies behind `to` may be read too.
    let bytes: [u8; STEP] = vectors.repeat(&unsafe { read(to.wrapping_sub(off)) }, off);
    let stride = usize::from(STRIDES[off % STEP]);
    let mut done = 0;
    while done < len {
        // SAFETY: `done` is less than `len`, and a step lies behind `to + len`.
        unsafe { write(to.wrapping_add(done), bytes) };
        done += stride;
    }
}

/// Repeats the `off` bytes before `to` until there are `len`, and up to a step more.
///
/// # Safety
/// As [`periods`], for any `off` from 1 on.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn again(vectors: impl Vectors, to: *mut u8, off: usize, len: usize) {
    if off >= STEP {
        // SAFETY: what the steps read lies at least a step before what they write.
        unsafe { steps(to.wrapping_sub(off), to, len) };
    } else {
        // SAFETY: the caller's.
        unsafe { periods(vectors, to, off, len) };
    }
}

/// Writes a word and `MORE` bytes of what the `off` bytes before `to` repeated give.
///
/// Where it is `GUESSED` that distances are a word at least, others take longer: that pays where there are few of them,
/// or they follow each other.
///
/// # Safety
/// `to` is valid for writes of that many bytes, and the `off` bytes before it (at least 1) for reads.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
pub(super) unsafe fn word_and<const MORE: usize, const GUESSED: bool>(vectors: impl Vectors, to: *mut u8, off: usize) {
    let from = to.wrapping_sub(off);
    // SAFETY: the caller's; what lies behind `to` may be read too.
    let bytes = unsafe { read::<WORD>(from) };
    // What follows is a whole number of periods back; where it is small, its load waits for no store before it.
    let (bytes, skip) = if GUESSED && off >= WORD {
        (bytes, WORD)
    } else {
        let period = off.min(WORD);
        (vectors.repeat16(&bytes, period), SKIPS[period].into())
    };
    // SAFETY: the caller's.
    unsafe { write(to, bytes) };
    // SAFETY: as above.
    let more = unsafe { read::<MORE>(from.wrapping_add(skip)) };
    // SAFETY: the caller's.
    unsafe { write(to.wrapping_add(WORD), more) };
}
