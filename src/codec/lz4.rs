//! LZ4 blocks: literals, and matches at distances of up to 65,535 bytes, which may start in a dictionary.
//!
//! Reference: the LZ4 block format. A block is a list of sequences: a token, literals, and a match except in the last
//! one. `fast` decodes sequences away from both ends; `Sequence` decodes the others, the last, and corrupt ones.
//!
//! The copies of `fast` are unsafe: in safe code it ran at 0.7 to 0.8 of the speed of the C library.
//!
//! Checked: every length against the ends of both buffers, every distance against the decoded bytes and the dictionary.
#![expect(unsafe_code, reason = "one check for all copies of a sequence")]

use std::ops::Range;

use super::lz;
use super::pace::{self, Pace, STRIDE};
use super::simd_dispatch::{self, SimdLoop, SimdOps};
use super::unchecked_copy::{STEP, WORD, copy_overlap, read, steps, word_and, write};

/// A fault in a block, and its byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// The reason.
    pub why: &'static str,
    /// Position in the block.
    pub at: usize,
}

const CUT: &str = "the LZ4 block is truncated";
/// Minimum length of a match.
const MIN_MATCH: usize = 4;
/// Value of a token nibble if more length bytes follow.
const MORE: usize = 15;

/// Decodes the block `src`, filling `dst` completely; `dictionary` is the history before `dst`.
///
/// # Errors
/// Fails with [`DecodeError`] if `src` is corrupt or decodes to another length; the content of `dst` is then
/// unspecified.
///
/// # Examples
/// ```
/// let mut dst = [0; 12];
/// fzmfs::codec::lz4::decode(&[0x32, b'a', b'b', b'c', 3, 0, 0x30, b'x', b'y', b'z'], &[], &mut dst).unwrap();
/// assert_eq!(&dst, b"abcabcabcxyz");
/// ```
pub fn decode(src: &[u8], dictionary: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
    decode_paced(src, dictionary, dst, &mut || ())
}

/// Like [`decode`]; calls `pace` after every [`STRIDE`] bytes of output.
///
/// # Errors
/// Like [`decode`].
pub fn decode_paced(src: &[u8], dictionary: &[u8], dst: &mut [u8], pace: Pace<'_>) -> Result<(), DecodeError> {
    simd_dispatch::run(Lz4Block { src, dictionary, dst, pace })
}

/// A block, its dictionary, and its output.
struct Lz4Block<'a> {
    src: &'a [u8],
    dictionary: &'a [u8],
    dst: &'a mut [u8],
    pace: Pace<'a>,
}

impl SimdLoop for Lz4Block<'_> {
    type Output = Result<(), DecodeError>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, vectors: impl SimdOps) -> Self::Output {
        let Self { src, dictionary, dst, pace } = self;
        let (mut ip, mut op, mut mark) = (0, 0, STRIDE);
        loop {
            (ip, op) = fast(vectors, src, dst, ip, op, mark);
            if op >= mark {
                pace();
                mark = op.saturating_add(STRIDE);
            }
            let sequence = Lz4Sequence::read(src, ip)?;
            op += sequence.copy(src, dictionary, dst, op, pace)?;
            ip = sequence.end;
            if sequence.matched.is_none() {
                break;
            }
        }
        if op == dst.len() {
            Ok(())
        } else {
            Err(DecodeError { why: "the LZ4 block decodes to too few bytes", at: ip })
        }
    }
}

/// Decodes sequences from `ip` on, writing from `op` on up to `mark`, while there is room to copy in steps. Returns
/// the positions in `src` and `dst` of the first sequence that it did not decode.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
fn fast(
    vectors: impl SimdOps,
    src: &[u8],
    dst: &mut [u8],
    mut ip: usize,
    mut op: usize,
    mark: usize,
) -> (usize, usize) {
    let (from, to) = (src.as_ptr(), dst.as_mut_ptr());
    // `last` leaves room for a token, short literals and a distance; `full` for short literals and a short match.
    let last = src.len().saturating_sub(1 + WORD + 2);
    let full = dst.len().saturating_sub(WORD + STEP).min(mark);
    while ip < last && op < full {
        let token = usize::from(src[ip]);
        let (mut ll, mut ml) = (token >> 4, token & 15);
        let mut at = ip + 1;
        if ll == MORE {
            if add(src, &mut at, &mut ll).is_none()
                || ll > STRIDE
                || (src.len() - at).saturating_sub(ll) < STEP + 2
                || (dst.len() - op).saturating_sub(ll) < 2 * STEP
            {
                break;
            }
            // SAFETY: by the checks above, `ll` bytes and a step are available in both buffers.
            unsafe { steps(from.wrapping_add(at), to.wrapping_add(op), ll) };
        } else {
            // SAFETY: by the loop condition, a word is available in both buffers.
            let bytes = unsafe { read::<WORD>(from.wrapping_add(at)) };
            // SAFETY: as above.
            unsafe { write(to.wrapping_add(op), bytes) };
        }
        at += ll;
        let middle = op + ll;
        debug_assert!(at + 2 <= src.len() && middle + STEP <= dst.len());
        // SAFETY: in either case at least two bytes follow the literals.
        let off = usize::from(u16::from_le_bytes(unsafe { read(from.wrapping_add(at)) }));
        at += 2;
        if off == 0 || off > middle {
            break;
        }
        let end = to.wrapping_add(middle);
        if ml == MORE {
            if add(src, &mut at, &mut ml).is_none() {
                break;
            }
            ml = ml.saturating_add(MIN_MATCH);
            if ml > STRIDE || (dst.len() - middle).saturating_sub(ml) < STEP {
                break;
            }
            // SAFETY: `ml` bytes and a step are available at `end`, and the match starts inside the output.
            unsafe { copy_overlap(vectors, end, off, ml) };
        } else {
            ml += MIN_MATCH;
            // SAFETY: a step is available at `end`, and the match starts inside the output.
            unsafe { word_and::<2, false>(vectors, end, off) };
        }
        (ip, op) = (at, middle + ml);
    }
    (ip, op)
}

/// Adds the following length bytes, up to and including the first that is not 255; `None` if they are truncated.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
fn add(src: &[u8], at: &mut usize, length: &mut usize) -> Option<()> {
    loop {
        let more = *src.get(*at)?;
        *at += 1;
        *length = length.saturating_add(more.into());
        if more != 255 {
            return Some(());
        }
    }
}

/// A sequence, parsed but not executed.
struct Lz4Sequence {
    /// Position of its literals.
    literals: Range<usize>,
    /// Length and distance of its match, and the position of the distance; `None` for the last sequence.
    matched: Option<(usize, usize, usize)>,
    /// Start of the next sequence.
    end: usize,
}

impl Lz4Sequence {
    /// Parses the sequence at `ip`.
    fn read(src: &[u8], mut ip: usize) -> Result<Self, DecodeError> {
        let cut = |at| DecodeError { why: CUT, at };
        let &token = src.get(ip).ok_or(cut(ip))?;
        ip += 1;
        let (mut ll, mut ml) = (usize::from(token >> 4), usize::from(token & 15));
        if ll == MORE {
            add(src, &mut ip, &mut ll).ok_or(cut(src.len()))?;
        }
        if src.len() - ip < ll {
            return Err(DecodeError { why: "literals past the end of the LZ4 block", at: ip });
        }
        let literals = ip..ip + ll;
        ip += ll;
        if ip == src.len() {
            return Ok(Self { literals, matched: None, end: ip });
        }
        let &off = lz::window::<2>(src, ip).ok_or(cut(ip))?;
        ip += 2;
        let at = ip;
        if ml == MORE {
            add(src, &mut ip, &mut ml).ok_or(cut(src.len()))?;
        }
        Ok(Self {
            literals,
            matched: Some((ml.saturating_add(MIN_MATCH), u16::from_le_bytes(off).into(), at)),
            end: ip,
        })
    }

    /// Writes its output at `op`, and no byte more; returns the number of bytes.
    fn copy(
        &self,
        src: &[u8],
        dictionary: &[u8],
        dst: &mut [u8],
        mut op: usize,
        pace: Pace<'_>,
    ) -> Result<usize, DecodeError> {
        let start = op;
        let from = &src[self.literals.clone()];
        match dst.get_mut(op..).and_then(|d| d.get_mut(..from.len())) {
            Some(to) => pace::copy(from, to, pace),
            None => return Err(DecodeError { why: "literals past the end of the output", at: self.literals.start }),
        }
        op += from.len();
        let Some((mut len, distance, at)) = self.matched else { return Ok(op - start) };
        if distance > op && distance - op <= dictionary.len() {
            // The match starts in the dictionary; its rest is copied from the start of the block.
            let from = &dictionary[dictionary.len() - (distance - op)..];
            let early = len.min(from.len());
            match dst.get_mut(op..).and_then(|d| d.get_mut(..early)) {
                Some(to) => to.copy_from_slice(&from[..early]),
                None => return Err(DecodeError { why: "match past the end of the output", at }),
            }
            op += early;
            len -= early;
        }
        if len > 0 {
            lz::repeat_paced(dst, op, distance, len, pace).map_err(|why| DecodeError { why, at })?;
        }
        Ok(op + len - start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::{cases, noise};
    use super::*;

    /// Data that compresses to short and long literals, near and far matches, and runs.
    fn samples() -> Vec<Vec<u8>> {
        let text: Vec<u8> = (0..9000_u32).flat_map(|i| (i * i / 7).to_string().into_bytes()).collect();
        let coarse = noise(50_000).iter().map(|b| b >> 6).collect();
        let runs = (0..300_usize).flat_map(|i| vec![i as u8; i * 7 % 500]).collect();
        let pairs = (0..40_000_u32).flat_map(|i| [(i / 1000) as u8, 3]).collect();
        let mixed = [noise(5000), text[..5000].to_vec(), noise(300), text[..5000].to_vec()].concat();
        let mut samples = vec![vec![], vec![7], noise(3000), text, coarse, runs, pairs, mixed];
        if cfg!(miri) {
            for bytes in &mut samples {
                bytes.truncate(500);
            }
        }
        samples
    }

    #[test]
    fn blocks_of_another_encoder_decode() {
        for bytes in samples() {
            let block = lz4_flex::block::compress(&bytes);
            let mut dst = vec![0xAA; bytes.len()];
            decode(&block, &[], &mut dst).unwrap();
            assert!(dst == bytes);
            assert!(decode(&block, &[], &mut vec![0; bytes.len() + 1]).is_err());
            if !bytes.is_empty() {
                assert!(decode(&block, &[], &mut vec![0; bytes.len() - 1]).is_err());
            }
            for len in (0..block.len()).step_by(1 + block.len() / 100) {
                assert!(decode(&block[..len], &[], &mut dst).is_err(), "cut at {len}");
            }
        }
    }

    /// A block of `ll` literals, a match of `ml` bytes from `off` back, and `rest` literals; and its decoded bytes.
    fn block(ll: usize, ml: usize, off: usize, rest: usize) -> (Vec<u8>, Vec<u8>) {
        let text = noise(ll + rest);
        let nibble = |n: usize| n.min(MORE) as u8;
        let more = |n: usize| {
            let n = n.checked_sub(MORE);
            n.into_iter().flat_map(|n| std::iter::repeat_n(255, n / 255).chain([(n % 255) as u8])).collect::<Vec<_>>()
        };
        let (first, last) = text.split_at(ll);
        let ml4 = ml - MIN_MATCH;
        let mut src = [&[nibble(ll) << 4 | nibble(ml4)], &*more(ll), first, &(off as u16).to_le_bytes()].concat();
        src.extend([&*more(ml4), &[nibble(rest) << 4], &more(rest), last].concat());
        let mut want = first.to_vec();
        (0..ml).for_each(|_| want.push(want[want.len() - off]));
        want.extend_from_slice(last);
        (src, want)
    }

    #[test]
    fn a_sequence_equals_a_bytewise_copy_also_near_the_ends() {
        for ll in cases([1, 2, 14, 15, 16, 17, 31, 32, 33, 64, 270, 600], 5) {
            for ml in cases((4..40).chain([63, 64, 65, 273, 274, 600]), 9) {
                for off in cases((1..40).chain([64, 500]).filter(|off| *off <= ll), 11) {
                    for rest in cases([0, 1, 12, 13, 30, 46, 47, 48, 49, 64, 100], 3) {
                        let (src, want) = block(ll, ml, off, rest);
                        let mut dst = vec![0; want.len()];
                        decode(&src, &[], &mut dst).unwrap();
                        assert!(dst == want, "{ll} literals, {ml} bytes from {off}, {rest} literals");
                        Lz4Block { src: &src, dictionary: &[], dst: &mut dst, pace: &mut || () }
                            .run(simd_dispatch::Portable)
                            .unwrap();
                        assert!(dst == want, "{ll} literals, {ml} bytes from {off}, {rest} literals, portable");
                    }
                }
            }
        }
    }

    #[test]
    fn matches_from_before_the_block_are_rejected_everywhere() {
        for rest in [0, 10, 100] {
            for (off, valid) in [(20, true), (21, false), (0, false)] {
                let (mut src, want) = block(20, 10, 20, rest);
                src[22..24].copy_from_slice(&u16::to_le_bytes(off));
                assert_eq!(decode(&src, &[], &mut vec![0; want.len()]).is_ok(), valid, "{off}, {rest}");
            }
        }
    }

    #[test]
    fn pacing_does_not_change_a_long_block() {
        let long = 3 * STRIDE + 77;
        for (src, want) in [block(long, 4, 1, 9), block(20, long, 7, 9), block(70_000, 5 * STRIDE, 60_000, long)] {
            let (mut dst, mut calls) = (vec![0; want.len()], 0);
            decode_paced(&src, &[], &mut dst, &mut || calls += 1).unwrap();
            assert!(dst == want);
            assert!(calls >= want.len() / STRIDE - 1, "{calls} calls for {} bytes", want.len());
        }
    }

    #[test]
    fn matches_may_start_in_the_dictionary() {
        for bytes in samples() {
            let dictionary = [noise(1000), bytes[..bytes.len().min(2000)].to_vec()].concat();
            let block = lz4_flex::block::compress_with_dict(&bytes, &dictionary);
            let mut dst = vec![0xAA; bytes.len()];
            decode(&block, &dictionary, &mut dst).unwrap();
            assert!(dst == bytes);
        }
    }

    #[test]
    fn damaged_blocks_decode_as_in_the_reference_decoder() {
        let mut seed = 1_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as usize
        };
        for bytes in samples().into_iter().filter(|b| b.len() > 2) {
            let good = lz4_flex::block::compress(&bytes[..bytes.len().min(3000)]);
            for _ in cases(0..300, 30) {
                let mut block = good.clone();
                let at = next() % block.len();
                block[at] = next() as u8;
                let (mut ours, mut theirs) = (vec![0; 3000], vec![0; 3000]);
                // The reference decoder reports the decoded length.
                let Ok(len) = lz4_flex::block::decompress_into(&block, &mut theirs) else { continue };
                if decode(&block, &[], &mut ours[..len]).is_ok() {
                    assert!(ours[..len] == theirs[..len]);
                }
            }
        }
    }
}
