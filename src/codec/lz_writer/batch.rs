//! Short sequences in batches, without a bounds check for each.
//!
//! The number of short sequences that certainly fit is computed once per round. After 64 KiB of output, a 16-bit
//! offset cannot reach before its start, so offsets need no check either. The rest of the work for each sequence is
//! small and stays in registers: with a bounds check for each, the official ZXC decoder, which works on four at a time,
//! was 1.2 times as fast.
//!
//! Checked: the room for a whole round, and that each sequence is short. Offsets have 16 bits by their type.
#![expect(unsafe_code, reason = "one check for the copies of many sequences")]

use std::ptr::copy;

use super::{LzWriter, STEP, SimdOps, WORD, copy_overlap, steps, word_and};

/// `ll` literals, and a match of `ml` bytes from at most 64 KiB back.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    /// Number of literals.
    pub ll: u32,
    /// Length of the match.
    pub ml: u32,
    /// Distance of the match, less 1.
    pub back: u16,
}

/// The stored form of a sequence: a head and a tail, and for some sequences extra bytes in a separate stream.
///
/// No implementation can cause access outside the buffers: [`LzWriter::copy_short_batch`] compares each sequence with
/// the constants, and does not compile for constants that it cannot count with.
pub trait SequenceFormat {
    /// Maximum number of literals of a short sequence.
    const LITERALS: u32;
    /// Maximum match length of a short sequence.
    const MATCH: u32;
    /// First part of the stored form.
    type Head: Copy;
    /// Second part of the stored form.
    type Tail: Copy;

    /// Decodes a short sequence; also returns how many extra bytes it uses, the first of them `next`. If the sequence
    /// is not short, returns any sequence that is not short.
    ///
    /// Must be `#[inline(always)]`, like everything that a kernel calls.
    fn peek(head: Self::Head, tail: Self::Tail, next: Option<u8>) -> (Sequence, usize);
}

/// From this position on, no match can start before the output.
const FAR: usize = 1 << 16;

impl LzWriter<'_> {
    /// Appends sequences while they are short and certainly fit, which is checked for many at once. `more` is the
    /// rest of the extra bytes, and is advanced.
    ///
    /// Returns how many were appended. The next one is not short, its match starts before the output, or it may not
    /// fit with 64 bytes to spare.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the inner loop of a kernel")]
    pub fn copy_short_batch<S: SequenceFormat>(
        &mut self,
        vectors: impl SimdOps,
        heads: &[S::Head],
        tails: &[S::Tail],
        more: &mut &[u8],
    ) -> usize {
        let mut done = 0;
        loop {
            let (heads, tails) = (&heads[done..], &tails[done..]);
            let (n, of) = if self.pos < FAR {
                self.round::<S, false>(vectors, heads, tails, more)
            } else {
                self.round::<S, true>(vectors, heads, tails, more)
            };
            done += n;
            if n == 0 || n < of {
                return done;
            }
        }
    }

    /// Appends short sequences that certainly fit and, unless `IS_FAR`, certainly start before [`FAR`]. Returns how
    /// many were appended, and how many could have been.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the inner loop of a kernel")]
    fn round<S: SequenceFormat, const IS_FAR: bool>(
        &mut self,
        vectors: impl SimdOps,
        heads: &[S::Head],
        tails: &[S::Tail],
        more: &mut &[u8],
    ) -> (usize, usize) {
        const {
            assert!(S::LITERALS > 0 && S::LITERALS.checked_add(S::MATCH).is_some(), "rounds are divided by the sum");
            assert!(WORD + 4 <= STEP, "a copy of fixed size ends within the step that is left");
        };
        let longest = (S::LITERALS + S::MATCH) as usize;
        let (free, literals) = (self.len - self.pos, self.literals_len - self.taken);
        // Sequences that certainly end before `FAR`, and the one that crosses it.
        let near = if IS_FAR { usize::MAX } else { (FAR - self.pos) / longest + 1 };
        let room = free.saturating_sub(2 * STEP) / longest;
        let n =
            room.min(literals.saturating_sub(STEP) / S::LITERALS as usize).min(near).min(heads.len()).min(tails.len());
        // Local copies stay in registers.
        let start = self.out;
        let (mut to, mut from) = (start.wrapping_add(self.pos), self.literals.wrapping_add(self.taken));
        let (mut done, mut used) = (0, 0);
        for (&head, &tail) in heads[..n].iter().zip(&tails[..n]) {
            let (Sequence { ll, ml, back }, extra) = S::peek(head, tail, more.get(used).copied());
            let off = usize::from(back) + 1;
            let middle = to.wrapping_add(ll as usize);
            if ll > S::LITERALS || ml > S::MATCH || !IS_FAR && off > middle.addr() - start.addr() {
                break;
            }
            // At the start of the round there was room for `n` of the longest short sequences and at least a step more.
            if S::LITERALS as usize <= WORD {
                // SAFETY: there is that room, and this sequence is one of the `n`.
                unsafe { copy(from, to, WORD) };
            } else {
                // SAFETY: as above.
                unsafe { steps(from, to, ll as usize) };
            }
            if S::MATCH as usize <= WORD + 4 {
                // SAFETY: as above; and the match starts inside the output.
                unsafe { word_and::<4, true>(vectors, middle, off) };
            } else {
                // SAFETY: as above.
                unsafe { copy_overlap(vectors, middle, off, ml as usize) };
            }
            (to, from) = (middle.wrapping_add(ml as usize), from.wrapping_add(ll as usize));
            used += extra;
            done += 1;
        }
        self.pos = to.addr() - start.addr();
        self.taken = from.addr() - self.literals.addr();
        *more = more.get(used..).unwrap_or_default();
        (done, n)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::shuffle::tests::{cases, noise};
    use super::super::super::simd_dispatch::{Portable, SimdLoop, run};
    use super::*;

    /// Guard bytes around the buffers, which must not change.
    const GUARD: usize = 700;

    /// Sequences of a batch; few under Miri.
    const COUNT: usize = if cfg!(miri) { 60 } else { 2000 };

    /// Lengths as stored, and for matches of `ADDED` bytes an extra byte that is added, if there is one.
    struct Plain<const LITERALS: u32, const MATCH: u32>;

    const ADDED: u8 = 9;

    impl<const LITERALS: u32, const MATCH: u32> SequenceFormat for Plain<LITERALS, MATCH> {
        const LITERALS: u32 = LITERALS;
        const MATCH: u32 = MATCH;
        type Head = [u8; 2];
        type Tail = u16;

        #[inline(always)]
        #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
        fn peek([ll, ml]: [u8; 2], back: u16, next: Option<u8>) -> (Sequence, usize) {
            let added = if ml == ADDED { next } else { None };
            let ml = u32::from(ml) + added.map_or(0, u32::from);
            (Sequence { ll: ll.into(), ml, back }, added.map_or(0, |_| 1))
        }
    }

    struct Batch<'t, 'a, const LITERALS: u32, const MATCH: u32>(
        &'t mut LzWriter<'a>,
        &'t [[u8; 2]],
        &'t [u16],
        &'t mut &'a [u8],
    );

    impl<const LITERALS: u32, const MATCH: u32> SimdLoop for Batch<'_, '_, LITERALS, MATCH> {
        type Output = usize;

        #[inline(always)]
        #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
        fn run(self, vectors: impl SimdOps) -> usize {
            self.0.copy_short_batch::<Plain<LITERALS, MATCH>>(vectors, self.1, self.2, self.3)
        }
    }

    /// Appends as many of the sequences as [`LzWriter::copy_short_batch`] accepts at position `pos`, with and without
    /// vectors, and compares the result with copying byte by byte; returns how many.
    fn check_batch<const LITERALS: u32, const MATCH: u32>(pos: usize, room: usize, literals: usize, seed: u8) -> usize {
        let random = noise(20_000).split_off(seed.into());
        let heads: Vec<[u8; 2]> = random.as_chunks().0[..COUNT]
            .iter()
            .map(|&[ll, ml]| [(u32::from(ll) % (LITERALS + 1)) as u8, (u32::from(ml) % (MATCH + 1)) as u8])
            .collect();
        let tails: Vec<u16> = random.as_chunks().0[3000..][..COUNT]
            .iter()
            .enumerate()
            .map(|(i, &bytes)| {
                u16::from_le_bytes(bytes)
                    % [1, 4, 16, 40, 300, u16::MAX][i % if pos < 300 { 2 } else { 6 }].min(pos as u16 | 1)
            })
            .collect();
        let more: Vec<u8> = noise(80).iter().map(|n| n % 5).collect();
        let around = noise(pos + room + 2 * GUARD);
        let text = noise(literals);
        let taken = [true, false].map(|portable| {
            let mut bytes = around.clone();
            let mut writer = LzWriter::new(&mut bytes[GUARD..][..pos + room], pos, &text);
            let mut left = more.as_slice();
            let batch = Batch::<LITERALS, MATCH>(&mut writer, &heads, &tails, &mut left);
            let taken = if portable { batch.run(Portable) } else { run(batch) };
            let (mut want, mut used, mut next) = (around[GUARD..][..pos].to_vec(), 0, more.iter());
            for (&[ll, ml], &back) in heads.iter().zip(&tails).take(taken) {
                let ml = ml + if ml == ADDED { next.next().copied().unwrap_or(0) } else { 0 };
                want.extend_from_slice(&text[used..][..ll.into()]);
                (0..ml).for_each(|_| want.push(want[want.len() - usize::from(back) - 1]));
                used += usize::from(ll);
            }
            assert_eq!((writer.pos(), writer.taken(), left), (want.len(), used, next.as_slice()));
            assert!(bytes[GUARD..][..want.len()] == want, "{pos} bytes before, room for {room}");
            let after = GUARD + pos + room;
            assert!(bytes[..GUARD] == around[..GUARD] && bytes[after..] == around[after..]);
            taken
        });
        assert_eq!(taken[0], taken[1]);
        taken[0]
    }

    #[test]
    fn a_batch_equals_bytewise_copies() {
        for seed in cases(0..8, 8) {
            for pos in cases([1, 50, 1000, FAR - 700, FAR - 1, FAR, FAR + 1000], 3) {
                // Some matches exceed the short length only with their extra byte.
                assert!(check_batch::<14, 19>(pos, 50 * COUNT, 25 * COUNT, seed) > 0);
                assert_eq!(check_batch::<14, 146>(pos, 150 * COUNT, 25 * COUNT, seed), COUNT);
                assert_eq!(check_batch::<200, 250>(pos, 300 * COUNT, 200 * COUNT, seed), COUNT);
            }
        }
    }

    #[test]
    fn a_batch_ends_where_there_is_no_room() {
        for room in cases((0..700).chain([3000, 20_000]), 120) {
            for literals in cases([0, 40, 46, 60, 100, 500, 5000], 3) {
                let n = check_batch::<14, 19>(FAR - 100, room, literals, 3);
                assert!(n > 0 || room < 14 + 19 + 64 || literals < 14 + 32, "room {room}, {literals} literals");
                check_batch::<200, 250>(FAR + 5, room, literals, 3);
            }
        }
        // A match that starts before the output is not appended, nor any sequence after it.
        let (text, mut bytes) = ([0; 200], [0; 1000]);
        for (pos, taken) in [(4, 0), (5, 2)] {
            let mut writer = LzWriter::new(&mut bytes, pos, &text);
            let batch = Batch::<14, 19>(&mut writer, &[[1, 2], [0, 3]], &[5, 0], &mut &[][..]);
            assert_eq!(run(batch), taken);
        }
    }
}
