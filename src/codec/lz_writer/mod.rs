//! The output and literals of an LZ decoder: executes sequences by copies of fixed size.
//!
//! A sequence copies `ll` literals, then `ml` bytes from `off` bytes back. Most need a few copies of fixed size, which
//! write past their end and are overwritten by the next sequence. [`LzWriter::copy_short_batch`] appends many at once.
//!
//! The copies are unsafe. Safe code ran at 0.7 to 0.8 of the speed of the official ZXC decoder; this code, one
//! sequence at a time, at 0.8 to 1.1. The compiler does not see that one bounds check covers all copies of a sequence,
//! and with a check for each copy the state does not fit in registers.
//!
//! Checked: before any byte is copied, that both buffers have room for the steps, and that the match
//! starts inside the output.
#![expect(unsafe_code, reason = "one check for all copies of a sequence")]

mod batch;

use std::marker::PhantomData;

use super::simd_dispatch::SimdOps;
use super::unchecked_copy::{STEP, WORD, copy_overlap, steps, word_and};
pub use batch::{Sequence, SequenceFormat};

/// An output that is filled from the front, and the literals to fill it with.
#[derive(Debug)]
pub struct LzWriter<'a> {
    /// The output: valid for reads and writes of `len` bytes for `'a`, without aliases.
    out: *mut u8,
    len: usize,
    /// The literals: valid for reads of `literals_len` bytes for `'a`.
    literals: *const u8,
    literals_len: usize,
    /// Position of the next byte of output: at most `len`.
    pos: usize,
    /// Number of literals used: at most `literals_len`.
    taken: usize,
    _borrows: PhantomData<(&'a mut [u8], &'a [u8])>,
}

impl<'a> LzWriter<'a> {
    /// A writer that writes to `out` from `pos` on, and uses `literals` from the start.
    pub fn new(out: &'a mut [u8], pos: usize, literals: &'a [u8]) -> Self {
        let (len, literals_len) = (out.len(), literals.len());
        let pos = pos.min(len);
        let (out, literals) = (out.as_mut_ptr(), literals.as_ptr());
        Self { out, len, literals, literals_len, pos, taken: 0, _borrows: PhantomData }
    }

    /// The whole output.
    #[inline]
    pub fn out(&mut self) -> &mut [u8] {
        // SAFETY: `out` is valid for `len` bytes, and the slice borrows `self`.
        unsafe { std::slice::from_raw_parts_mut(self.out, self.len) }
    }

    /// Position of the next byte of output.
    #[inline]
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Number of literals used.
    #[inline]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Advances by `n` bytes of output, `ll` of them literals; the caller has written them.
    #[inline]
    pub fn skip(&mut self, ll: usize, n: usize) {
        self.pos = self.pos.saturating_add(n).min(self.len);
        self.taken = self.taken.saturating_add(ll).min(self.literals_len);
    }

    /// Appends `ll` literals and then `ml` bytes from `off` back, where `ll` is at most 16 and `ml` at most
    /// 16 + `MORE`; `MORE` is at most 16.
    ///
    /// Returns false, without an effect, if a length is larger, the match starts before the output, or the room left is
    /// at most 48 bytes of output or 16 literals. May overwrite bytes after the sequence with unspecified values.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    pub fn short<const MORE: usize>(&mut self, vectors: impl SimdOps, ll: u32, ml: u32, off: usize) -> bool {
        const { assert!(WORD + MORE <= STEP, "a short match is a step at most") };
        let (ll, ml) = (ll as usize, ml as usize);
        if ll > WORD || ml > WORD + MORE {
            return false;
        }
        // Constant limits for all sequences.
        let room = self.len.saturating_sub(WORD + STEP);
        let literals = self.literals_len.saturating_sub(WORD);
        if self.pos >= room || self.taken >= literals {
            return false;
        }
        let middle = self.pos + ll;
        if off == 0 || off > middle {
            return false;
        }
        debug_assert!(middle + STEP <= self.len && self.taken + WORD <= self.literals_len);
        let from = self.literals.wrapping_add(self.taken);
        let to = self.out.wrapping_add(self.pos);
        // SAFETY: by the checks above, a word is available in both buffers.
        unsafe { std::ptr::copy(from, to, WORD) };
        // SAFETY: a step is available at `middle`, and the match starts inside the output.
        unsafe { word_and::<MORE, false>(vectors, self.out.wrapping_add(middle), off) };
        self.taken += ll;
        self.pos = middle + ml;
        true
    }

    /// Like [`LzWriter::short`] for any `ll` and `ml`, but needs room for both and 64 bytes more.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    pub fn long(&mut self, vectors: impl SimdOps, ll: u32, ml: u32, off: usize) -> bool {
        let (ll, ml) = (ll as usize, ml as usize);
        // The sum of two 32-bit lengths cannot overflow.
        if self.len - self.pos < ll + ml + 2 * STEP || self.literals_len - self.taken < ll + STEP {
            return false;
        }
        let middle = self.pos + ll;
        if off == 0 || off > middle {
            return false;
        }
        debug_assert!(middle + ml + STEP <= self.len && self.taken + ll + STEP <= self.literals_len);
        let from = self.literals.wrapping_add(self.taken);
        let to = self.out.wrapping_add(self.pos);
        // SAFETY: by the checks above, `ll` bytes and a step are available in both buffers.
        unsafe { steps(from, to, ll) };
        let to = self.out.wrapping_add(middle);
        // SAFETY: `ml` bytes and a step are available at `to`, and the match starts inside the output.
        unsafe { copy_overlap(vectors, to, off, ml) };
        self.taken += ll;
        self.pos = middle + ml;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::{cases, noise};
    use super::super::simd_dispatch::{Portable, SimdLoop, run};
    use super::*;

    /// Guard bytes around the buffers, which must not change.
    const GUARD: usize = 100;

    /// A sequence: number of literals, length of the match, distance.
    #[derive(Debug, Clone, Copy)]
    struct Sequence(u32, u32, usize);

    /// How to append: [`LzWriter::short`] with this `MORE`, or [`LzWriter::long`].
    #[derive(Debug, Clone, Copy)]
    enum Form {
        Short4,
        Short16,
        Long,
    }

    struct One<'t, 'a>(&'t mut LzWriter<'a>, Sequence, Form);

    impl SimdLoop for One<'_, '_> {
        type Output = bool;

        #[inline(always)]
        #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
        fn run(self, vectors: impl SimdOps) -> bool {
            let Self(writer, Sequence(ll, ml, off), form) = self;
            match form {
                Form::Short4 => writer.short::<4>(vectors, ll, ml, off),
                Form::Short16 => writer.short::<16>(vectors, ll, ml, off),
                Form::Long => writer.long(vectors, ll, ml, off),
            }
        }
    }

    /// Executes `sequence` in the given form on both kinds of vectors, with `pos` bytes written and `room` left, and
    /// compares the result with copying byte by byte; returns whether it was accepted.
    fn check(pos: usize, room: usize, literals: usize, sequence: Sequence, form: Form) -> bool {
        let Sequence(ll, ml, off) = sequence;
        let around = noise(pos + room + 2 * GUARD);
        let text = noise(literals + 7).split_off(7);
        let taken = [true, false].map(|portable| {
            let mut bytes = around.clone();
            let mut writer = LzWriter::new(&mut bytes[GUARD..][..pos + room], pos, &text);
            let one = One(&mut writer, sequence, form);
            let taken = if portable { one.run(Portable) } else { run(one) };
            let end = if taken { pos + (ll + ml) as usize } else { pos };
            assert_eq!((writer.pos(), writer.taken()), (end, if taken { ll as usize } else { 0 }), "{sequence:?}");
            let mut want = around[GUARD..][..pos].to_vec();
            if taken {
                want.extend_from_slice(&text[..ll as usize]);
                (0..ml).for_each(|_| want.push(want[want.len() - off]));
            }
            assert!(bytes[GUARD..][..end] == want, "{sequence:?}, {pos} bytes before, room for {room}");
            let after = if taken { GUARD + pos + room } else { GUARD + pos };
            assert!(bytes[..GUARD] == around[..GUARD] && bytes[after..] == around[after..], "{sequence:?}");
            taken
        });
        assert_eq!(taken[0], taken[1]);
        taken[0]
    }

    #[test]
    fn a_sequence_equals_a_bytewise_copy() {
        for off in cases((1..70).chain([100, 300]), 11) {
            for ll in cases([0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 100], 5) {
                for ml in cases((0..70).chain([100, 255, 1000]), 13) {
                    let sequence = Sequence(ll, ml, off);
                    assert!(check(300, 2000, 200, sequence, Form::Long), "{sequence:?}");
                    for (form, most) in [(Form::Short4, 20), (Form::Short16, 32)] {
                        let is_short = ll <= 16 && ml <= most;
                        assert_eq!(check(300, 2000, 200, sequence, form), is_short, "{sequence:?}, {form:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn sequences_without_room_or_before_the_output_are_left_out() {
        for form in [Form::Short4, Form::Short16, Form::Long] {
            let taken = |pos, room, literals, off| check(pos, room, literals, Sequence(5, 20, off), form);
            for room in cases(0..120, 17) {
                for literals in cases(0..60, 13) {
                    let some = taken(40, room, literals, 3);
                    assert!(some || room < 90 || literals < 40, "room {room}, {literals} literals");
                    assert!(!some || (room >= 25 && literals >= 5));
                }
            }
            assert!(taken(10, 200, 100, 15));
            assert!(!taken(10, 200, 100, 16));
            assert!(!taken(10, 200, 100, 0));
            assert!(!taken(10, 200, 100, usize::MAX));
            assert!(!check(10, 200, 100, Sequence(u32::MAX, u32::MAX, 1), form));
        }
    }
}
