//! `BitplaneRZE` (type 23): bit planes of chunks of 4096 bytes, without groups of zeros.

use super::{Encoded, Stage};
use crate::dtype::Dtype;
use crate::elements::Record;
use crate::spec::Params;
use crate::{Random, Result};

const CHUNK: usize = 4096;

#[derive(Debug)]
pub(crate) struct BitplaneRze {
    /// The seed of the order of the chunks; 0 leaves them in order.
    seed: u64,
    config: usize,
}

impl BitplaneRze {
    pub(crate) fn new(p: &mut Params) -> Result<Self> {
        Ok(Self { seed: p.take("order", 0)?, config: p.one_of("config", &[8, 0])? })
    }
}

/// The bitmap and the kept words of a chunk.
fn encode(chunk: &[u8]) -> ([u8; 32], Vec<u8>) {
    let mut words = [0_u32; CHUNK / 4];
    words.iter_mut().zip(chunk.as_chunks().0).for_each(|(own, bytes)| *own = u32::from_le_bytes(*bytes));
    let plane =
        |bit: usize, row: usize| (0..32).fold(0, |plane, lane| plane | (words[32 * row + lane] >> bit & 1) << lane);
    let (mut map, mut kept) = ([0; 32], Vec::new());
    for group in 0..256 {
        let own: Vec<u32> = (0..4).map(|i| plane(group / 8, group % 8 * 4 + i)).collect();
        if own.iter().any(|word| *word != 0) {
            map[group / 8] |= 1 << (group % 8);
            kept.extend(own.iter().flat_map(|word| word.to_le_bytes()));
        }
    }
    (map, kept)
}

impl Stage for BitplaneRze {
    fn kind(&self) -> u16 {
        23
    }

    fn name(&self) -> &'static str {
        "bitplane_rze"
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        if !input.len().is_multiple_of(2) {
            return Err("an odd number of bytes".into());
        }
        let mut padded = input.to_vec();
        padded.resize(input.len().next_multiple_of(CHUNK).max(CHUNK), 0);
        let chunks: Vec<([u8; 32], Vec<u8>)> = padded.chunks(CHUNK).map(encode).collect();
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        if self.seed != 0 {
            Random::new(self.seed).shuffle(&mut order);
        }
        let (mut starts, mut words) = (vec![0; chunks.len()], Vec::<u8>::new());
        for &chunk in &order {
            starts[chunk] = words.len() as u32 / 4;
            words.extend(&chunks[chunk].1);
        }
        let count = input.len() as u64 / 2;
        let maps = 128 + 32 * chunks.len() as u32;
        let sections =
            [0, 128, maps, maps + 4 * chunks.len() as u32, maps + 4 * chunks.len() as u32 + words.len() as u32];
        let mut out = sections.into_iter().fold(Record::default().u64(count), Record::u32).zeros(100).0;
        out.extend(chunks.iter().flat_map(|(map, _)| map));
        out.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
        out.extend(words);
        let config = Record::default().u64(count).0;
        Ok(Encoded::one(config[..self.config].to_vec(), out))
    }
}
