//! Merge (type 11): several buffers as one, without a header or padding.
//!
//! Reference: `Merge`. The configuration has the size of each piece. A piece is the buffer that its producer handed
//! over while the pipeline ran, which may be longer than its valid part.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::config::{Config, ConfigLayout, Field};
use super::{Context, DataType, Family, Part, Stage, StageType, exactly};
use crate::error::Result;
use crate::format::fzm::stream::ByteStream;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 11,
    name: "merge",
    family: Family::Shuffler,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Merge::parse(&config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout { sizes: &[], fields: FIELDS.split_at(1).0 };

/// The fields with a size for each piece, by the number of pieces; names, which may be missing, follow.
static LAYOUTS: [ConfigLayout; MOST] = [of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8)];

const fn of(pieces: usize) -> ConfigLayout {
    ConfigLayout { sizes: &[], fields: FIELDS.split_at(1 + pieces).0 }
}

const FIELDS: &[Field] = &[
    Field::u8("num_inputs", 0),
    Field::u32("size_0", 1),
    Field::u32("size_1", 5),
    Field::u32("size_2", 9),
    Field::u32("size_3", 13),
    Field::u32("size_4", 17),
    Field::u32("size_5", 21),
    Field::u32("size_6", 25),
    Field::u32("size_7", 29),
];

/// Most pieces: a stage record can name no more buffers.
const MOST: usize = 8;

/// The configuration.
struct Merge {
    config: Config,
    sizes: Vec<u64>,
}

impl Merge {
    fn parse(config: &Config) -> Result<Self> {
        let count = usize::from(config.u8("num_inputs"));
        let layout = count.checked_sub(1).and_then(|last| LAYOUTS.get(last));
        let Some(layout) = layout else {
            return Err(config.unknown("num_inputs", format!("{count} pieces")));
        };
        let config = config.with_layout(layout)?;
        let sizes = config.bytes().get(1..).and_then(|rest| rest.get(..4 * count));
        let sizes = sizes.ok_or_else(|| config.corrupt("num_inputs", format!("{count} pieces without their sizes")))?;
        let sizes = sizes.as_chunks().0.iter().map(|size| u64::from(u32::from_le_bytes(*size))).collect();
        Ok(Self { config, sizes })
    }
}

impl Stage for Merge {
    fn config(&self) -> &Config {
        &self.config
    }

    fn inputs(&self) -> usize {
        self.sizes.len()
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::Opaque
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("{} pieces", self.sizes.len())]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [merged] = exactly(outputs)?;
        let sum: u64 = self.sizes.iter().sum();
        if sum != merged.len() {
            let why = format!("the pieces have {sum} bytes, the stream {}", merged.len());
            return Err(self.config.corrupt("size_0", why));
        }
        let mut from = 0;
        let mut piece = |&len: &u64| {
            let at = from;
            from += len;
            Arc::new(Part { stream: Arc::clone(&merged), at, len }) as Arc<dyn ByteStream>
        };
        Ok(self.sizes.iter().map(&mut piece).collect())
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{Memory, context, made_of, round_trip, whole};
    use super::*;

    fn pieces(config: &[u8], inputs: usize, merged: &[u8]) -> Result<Vec<Vec<u8>>> {
        let merged: Arc<dyn ByteStream> = Arc::new(Memory(merged.to_vec()));
        made_of(11, config, inputs, 1)?.invert(vec![merged], &context())?.iter().map(|piece| whole(&**piece)).collect()
    }

    /// Sizes of the pieces, and names.
    fn config(sizes: &[u32], names: &str) -> Vec<u8> {
        let mut config = vec![sizes.len() as u8];
        config.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        config.extend(names.bytes());
        config
    }

    #[test]
    fn pieces_are_cut_at_their_sizes() {
        let want: [&[u8]; 3] = [&[1, 2], &[], &[3]];
        for names in ["", "\u{1}a\u{1}b\u{1}c", "garbage of any length"] {
            assert_eq!(pieces(&config(&[2, 0, 1], names), 3, &[1, 2, 3]).unwrap(), want);
        }
        assert_eq!(pieces(&config(&[0; 8], ""), 8, &[]).unwrap(), vec![Vec::<u8>::new(); 8]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let error = |config: &[u8], inputs, merged: &[u8]| pieces(config, inputs, merged).unwrap_err().to_string();
        let e = error(&config(&[2, 1], ""), 2, &[1, 2]);
        assert_eq!(e, "the pieces have 3 bytes, the stream 2 (size_0, at byte 0x101)");
        let e = error(&config(&[u32::MAX, 2], ""), 2, &[1]);
        assert_eq!(e, "the pieces have 4294967297 bytes, the stream 1 (size_0, at byte 0x101)");
        assert!(error(&config(&[1], ""), 1, &[1, 2]).contains("the pieces have 1 bytes, the stream 2"));
        let e = error(&config(&[2, 1], "")[..8], 2, &[1, 2, 3]);
        assert_eq!(e, "2 pieces without their sizes (stage 0 (merge): num_inputs, at byte 0x100)");
        assert!(error(&[0], 1, &[]).contains("0 pieces"));
        assert!(error(&config(&[0; 9], ""), 9, &[]).contains("9 pieces"));
        assert!(error(&config(&[0; 2], ""), 3, &[]).contains("3 inputs"));
    }

    #[test]
    fn ports_of_a_producer_come_back_from_their_merge() {
        let numbers = field::smooth(Dtype::I32, &[10_000], 3.0, 1);
        round_trip("adaptive_lorenzo,adaptive_bitpack,merge:from=0.modes+0.means,rze", Dtype::I32, &[10_000], &numbers);
        round_trip("zigzag,rle,merge:from=1,names=0", Dtype::I32, &[10_000], &numbers);
    }
}
