//! ANS (type 20): bytes under range ANS with 32 interleaved states.

use super::{Encoded, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::Record;

/// Bytes of a block.
const BLOCK: usize = 4096;
/// States of a block.
const LANES: usize = 32;
/// The sum of the weights.
const TOTAL: u32 = 1024;
/// A byte for memory that the library does not write.
const JUNK: u8 = 0xA5;

#[derive(Debug)]
pub(crate) struct Ans;

impl Stage for Ans {
    fn kind(&self) -> u16 {
        20
    }

    fn name(&self) -> &'static str {
        "ans"
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn alignment(&self) -> usize {
        4
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let config = Record::default().u8(10).zeros(3).u64(input.len() as u64).0;
        if input.is_empty() {
            return Ok(Encoded::one(config, Vec::new()));
        }
        let weights = weights(input);
        let blocks: Vec<([u32; LANES], Vec<u16>)> = input.chunks(BLOCK).map(|block| encode(&weights, block)).collect();
        let (mut states, mut table, mut words) = (Vec::new(), Vec::new(), Vec::new());
        for ((own, emitted), block) in blocks.iter().zip(input.chunks(BLOCK)) {
            states.extend(own.iter().flat_map(|state| state.to_le_bytes()));
            table.extend(((block.len() as u32) << 16 | emitted.len() as u32).to_le_bytes());
            table.extend((words.len() as u32 / 2).to_le_bytes());
            words.extend(emitted.iter().flat_map(|word| word.to_le_bytes()));
            words.resize(words.len().next_multiple_of(16), JUNK);
        }
        table.resize(table.len().next_multiple_of(16), JUNK);
        let mut stream = Record::default()
            .u32(0xD00D_0001)
            .u32(blocks.len() as u32)
            .u32(input.len() as u32)
            .u32(words.len() as u32 / 2)
            .u32(0xA5A5_A5AA)
            .0;
        stream.resize(32, JUNK);
        stream.extend(weights.iter().flat_map(|&weight| (weight as u16).to_le_bytes()));
        stream.extend(states);
        stream.extend(table);
        stream.extend(words);
        Ok(Encoded::one(config, stream))
    }
}

/// The weights that the library would give the bytes of `input`.
fn weights(input: &[u8]) -> [u32; 256] {
    let mut counts = [0_u32; 256];
    for &byte in input {
        counts[usize::from(byte)] += 1;
    }
    let share = |count: u32| ((TOTAL as f32) * (count as f32 / input.len() as f32)).floor() as u32;
    let mut weights = counts.map(|count| share(count).max(u32::from(count > 0)));
    let sum: u32 = weights.iter().sum();
    for weight in weights.iter_mut().take(TOTAL.saturating_sub(sum) as usize) {
        *weight += 1;
    }
    let mut excess = sum.saturating_sub(TOTAL);
    while excess > 0 {
        let mut order: Vec<usize> = (0..256).filter(|&byte| weights[byte] > 1).collect();
        order.sort_by_key(|&byte| weights[byte]);
        for byte in order.into_iter().take(excess as usize) {
            weights[byte] -= 1;
            excess -= 1;
        }
    }
    weights
}

/// The last states and the words of a block.
fn encode(weights: &[u32; 256], block: &[u8]) -> ([u32; LANES], Vec<u16>) {
    let (mut states, mut words) = ([1 << 15; LANES], Vec::new());
    for row in block.chunks(LANES) {
        for (state, &byte) in states.iter_mut().zip(row) {
            let weight = weights[usize::from(byte)];
            let below: u32 = weights[..usize::from(byte)].iter().sum();
            if u64::from(*state) >= u64::from(weight) << 21 {
                words.push(*state as u16);
                *state >>= 16;
            }
            *state = *state / weight * TOTAL + *state % weight + below;
        }
    }
    (states, words)
}
