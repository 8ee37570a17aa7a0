//! TUPL (section 4 of the LC stages): tuples of words, field by field.

use crate::Result;
use crate::dtype::Dtype;
use crate::elements::Record;
use crate::spec::Params;
use crate::stage::{Encoded, Stage};

#[derive(Debug)]
pub(crate) struct Tupl {
    block: usize,
    word: usize,
    dim: usize,
}

impl Tupl {
    pub(crate) fn new(p: &mut Params) -> Result<Self> {
        let stage = Self { block: p.take("block", 16384)?, word: p.take("w", 1)?, dim: p.take("dim", 2)? };
        if !matches!(stage.word, 1 | 2 | 4 | 8) || !(2..=255).contains(&stage.dim) {
            return Err("w must be 1, 2, 4 or 8, and dim 2 to 255".into());
        }
        if stage.block == 0 || !stage.block.is_multiple_of(stage.word) {
            return Err(format!("block={}: must be a multiple of w", stage.block));
        }
        Ok(stage)
    }
}

impl Stage for Tupl {
    fn kind(&self) -> u16 {
        31
    }

    fn name(&self) -> &'static str {
        "tupl"
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn alignment(&self) -> usize {
        self.block
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let (w, dim) = (self.word, self.dim);
        let mut out = input.to_vec();
        for (block, own) in input.chunks_exact(self.block).zip(out.chunks_exact_mut(self.block)) {
            let n = self.block / w / dim;
            for (t, f) in (0..n).flat_map(|t| (0..dim).map(move |f| (t, f))) {
                own[(f * n + t) * w..][..w].copy_from_slice(&block[(t * dim + f) * w..][..w]);
            }
        }
        let config = Record::default().u32(self.block as u32).u8(w as u8).u8(dim as u8).0;
        Ok(Encoded::one(config, out))
    }
}
