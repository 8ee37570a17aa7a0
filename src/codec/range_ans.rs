//! Range ANS of bytes in blocks of 32 interleaved states, with 10 bits of probability and words of 16 bits.
//!
//! Reference: section 20 of the FZM reference. Rows of 32 bytes are decoded from the last to the first, and words are
//! taken from the end; a higher lane takes the later word. A block was intact if at its end no word is left and every
//! state is the one that the encoder started from.
//!
//! Two blocks are decoded at a time where the processor has the vectors for it: a row waits for the one before it.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use super::simd_dispatch::{SimdLoop, SimdOps, run};

pub use super::ans_lanes::{Block, LANES, PAD, Slots};
use super::ans_lanes::{Lanes, START, step};

/// Decodes the rows of a block.
struct AnsRows<'a, 'b>(&'a Slots, &'a mut Lanes<'b>);

impl SimdLoop for AnsRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl SimdOps) {
        let Self(slots, lanes) = self;
        let mut states = lanes.states;
        for row in lanes.rows.as_chunks_mut::<LANES>().0.iter_mut().rev() {
            let ahead = lanes.left.checked_sub(PAD).and_then(|from| lanes.words.get(from..)?.first_chunk::<PAD>());
            let Some(ahead) = ahead else { return };
            // Loads, arithmetic and refills apart: all but the loads are done in vectors.
            let mut taken = 0_u32;
            for (lane, (byte, state)) in row.iter_mut().zip(&mut states).enumerate() {
                (*byte, *state) = step(slots, *state);
                taken |= u32::from(*state < START) << lane;
            }
            let mut at = LANES.wrapping_sub(taken.count_ones() as usize);
            let mut words = [0_u32; LANES];
            for (lane, word) in words.iter_mut().enumerate() {
                let place = 2 * (at % LANES);
                *word = u32::from(u16::from_le_bytes([ahead[place], ahead[place + 1]]));
                at += (taken >> lane & 1) as usize;
            }
            for (state, word) in states.iter_mut().zip(&words) {
                *state = if *state < START { *state << 16 | word } else { *state };
            }
            lanes.left -= 2 * taken.count_ones() as usize;
        }
        lanes.states = states;
    }
}

/// Decodes one block; returns whether it was intact.
fn one(slots: &Slots, block: &mut Block) -> bool {
    let mut lanes = Lanes::new(slots, block);
    #[cfg(target_arch = "x86_64")]
    if let Some(kernels) = super::avx512_ans::Kernels::get() {
        kernels.rows(slots, [&mut lanes]);
        return lanes.is_complete();
    }
    run(AnsRows(slots, &mut lanes));
    lanes.is_complete()
}

/// Decodes two blocks; returns whether both were intact.
fn two(slots: &Slots, a: &mut Block, b: &mut Block) -> bool {
    #[cfg(target_arch = "x86_64")]
    if a.out.len() == b.out.len()
        && let Some(kernels) = super::avx512_ans::Kernels::get()
    {
        let (mut a, mut b) = (Lanes::new(slots, a), Lanes::new(slots, b));
        kernels.rows(slots, [&mut a, &mut b]);
        return a.is_complete() && b.is_complete();
    }
    one(slots, a) && one(slots, b)
}

/// Decodes `blocks`.
///
/// # Errors
/// Fails with the index of the first block with inconsistent states and words.
pub fn decode(slots: &Slots, blocks: &mut [Block]) -> Result<(), usize> {
    for (pair, blocks) in blocks.chunks_mut(2).enumerate() {
        if let [a, b] = blocks
            && two(slots, a, b)
        {
            continue;
        }
        if let Some(i) = blocks.iter_mut().position(|block| !one(slots, block)) {
            return Err(2 * pair + i);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ans_lanes::SLOTS;
    use super::super::shuffle::tests::cases;
    use super::*;

    /// Encodes `bytes`: the states, and the words between their padding.
    fn encode(weights: &[u16; 256], bytes: &[u8]) -> ([u32; LANES], Vec<u8>) {
        let (mut states, mut words) = ([START; LANES], vec![0xEE; PAD]);
        for row in bytes.chunks(LANES) {
            for (state, &byte) in states.iter_mut().zip(row) {
                let weight = u32::from(weights[usize::from(byte)]);
                let below: u32 = weights[..usize::from(byte)].iter().map(|&w| u32::from(w)).sum();
                if u64::from(*state) >= u64::from(weight) << 21 {
                    words.extend((*state as u16).to_le_bytes());
                    *state >>= 16;
                }
                *state = *state / weight * 1024 + *state % weight + below;
            }
        }
        words.extend([0xDD; PAD]);
        (states, words)
    }

    fn weights(kind: u8) -> [u16; 256] {
        let mut weights = [0; 256];
        match kind {
            0 => weights = [4; 256],
            1 => weights[77] = 1024,
            2 => (weights[0], weights[255]) = (1023, 1),
            _ => {
                let mut rest = 1024;
                for weight in &mut weights[10..60] {
                    *weight = (rest / 7).max(1).min(rest);
                    rest -= *weight;
                }
                weights[60] = rest;
            }
        }
        weights
    }

    #[test]
    fn blocks_of_every_length_decode_alone_and_in_pairs_with_and_without_vectors() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            seed >> 33
        };
        for kind in 0..4 {
            let weights = weights(kind);
            let slots = Slots::new(weights.into_iter()).unwrap();
            for len in cases((0..70).chain([4064, 4095, 4096]), 23) {
                let make = |random: &mut dyn FnMut() -> u64| -> Vec<u8> {
                    (0..len).map(|_| slots.0[random() as usize % SLOTS] as u8).collect()
                };
                let data = [make(&mut random), make(&mut random)];
                let coded = [encode(&weights, &data[0]), encode(&weights, &data[1])];
                let mut outs = [vec![0xAA; len], vec![0xAA; len]];
                let mut blocks: Vec<Block> = coded
                    .iter()
                    .zip(&mut outs)
                    .map(|((states, words), out)| Block { states: *states, words, out })
                    .collect();
                assert_eq!(decode(&slots, &mut blocks), Ok(()), "{kind} {len}");
                for block in &mut blocks {
                    let mut lanes = Lanes::new(&slots, block);
                    run(AnsRows(&slots, &mut lanes));
                    assert!(lanes.is_complete());
                }
                assert!(outs == data);
                let mut out = vec![0xAA; len];
                let block = Block { states: coded[1].0, words: &coded[1].1, out: &mut out };
                assert_eq!(decode(&slots, &mut [block]), Ok(()));
                assert!(out == data[1]);
            }
        }
    }

    #[test]
    fn the_broken_block_of_a_pair_is_named() {
        let weights = weights(3);
        let slots = Slots::new(weights.into_iter()).unwrap();
        let data: Vec<u8> = (0..4096_u32).map(|i| 10 + (i * i % 40) as u8).collect();
        let (states, words) = encode(&weights, &data);
        let mut other = states;
        other[7] ^= 1 << 12;
        for (broken, short) in [(other, 0), (states, 2), (states, 1000), (states, words.len() - 2 * PAD)] {
            for place in 0..3 {
                let mut outs = [0; 3].map(|_| vec![0; 4096]);
                let mut blocks: Vec<Block> = (0..)
                    .zip(&mut outs)
                    .map(|(i, out)| {
                        let own = i == place;
                        let words = if own { &words[short..] } else { &words };
                        Block { states: if own { broken } else { states }, words, out }
                    })
                    .collect();
                assert_eq!(decode(&slots, &mut blocks), Err(place));
            }
        }
    }

    #[test]
    fn weights_that_do_not_add_up_are_refused() {
        for wrong in [[3; 256], [5; 256], [u16::MAX; 256]] {
            assert!(Slots::new(wrong.into_iter()).is_none());
        }
    }
}
