//! RRE (type 26), RARE (27), RAZE (28), CLOG (29) and HCLOG (30): coders of words in chunks.
//!
//! Reference: sections 1 to 3 of the LC stages; section 5 of the block stages (RRE). All have the same configuration
//! and the same stream of chunks; they differ in the coding of a chunk.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::bitmaps::Levels;
use super::chunks::{Coding, Invalid, LcChunks, with_bitmaps};
use super::kept_words::Left;
use super::rare_body::Upper;
use super::{clog_body, kept_words, rare_body};
use crate::error::Result;
use crate::format::fzm::stage::config::{Config, ConfigLayout, Field};
use crate::format::fzm::stage::{Context, DataType, Family, Stage, StageType, exactly};
use crate::format::fzm::stream::ByteStream;

/// The stage types.
pub(in super::super) const RRE: StageType = row(26, "rre", |config| coder(config, "rre chunk", CoderForm::Rre));
pub(in super::super) const RARE: StageType = row(27, "rare", |config| coder(config, "rare chunk", CoderForm::Rare));
pub(in super::super) const RAZE: StageType = row(28, "raze", |config| coder(config, "raze chunk", CoderForm::Raze));
pub(in super::super) const CLOG: StageType = row(29, "clog", |config| coder(config, "clog chunk", CoderForm::Clog));
pub(in super::super) const HCLOG: StageType = row(30, "hclog", |config| coder(config, "hclog chunk", CoderForm::Hclog));

const fn row(code: u16, name: &'static str, parse: fn(Config) -> Result<Box<dyn Stage>>) -> StageType {
    StageType { code, name, family: Family::Coder, layout: &LAYOUT, parse }
}

/// The configuration of a coder; fields that a shorter one lacks have defaults.
pub(in super::super) const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[0, 4, 5, 9],
    fields: &[Field::u32("chunk_size", 0), Field::u8("word_size", 4), Field::u32("original_size", 5)],
};

/// The chunk size, the word size and the length of the input.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Sizes {
    pub(in super::super) chunk: usize,
    pub(in super::super) word: usize,
    pub(in super::super) original: Option<u64>,
}

impl Sizes {
    /// The sizes in `config`, of [`LAYOUT`].
    ///
    /// # Errors
    /// Fails with [`Kind::Unknown`](crate::error::Kind::Unknown) for sizes that no writer gives.
    pub(in super::super) fn parse(config: &Config) -> Result<Self> {
        let chunk = if config.has("chunk_size") { config.u32("chunk_size") } else { 16384 };
        if !matches!(chunk, 4096 | 8192 | 16384) {
            return Err(config.unknown("chunk_size", format!("a chunk of {chunk} bytes")));
        }
        let word = if config.has("word_size") { config.u8("word_size") } else { 1 };
        if !matches!(word, 1 | 2 | 4 | 8) {
            return Err(config.unknown("word_size", format!("a word of {word} bytes")));
        }
        let original = config.has("original_size").then(|| config.u64("original_size"));
        Ok(Self { chunk: chunk as usize, word: word.into(), original })
    }

    /// The lines for the diagram.
    pub(in super::super) fn summary(self) -> Vec<String> {
        vec![format!("words of {}", self.word), format!("chunks of {} bytes", self.chunk)]
    }
}

/// The coding of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CoderForm {
    Rre,
    Rare,
    Raze,
    Clog,
    Hclog,
}

/// A stage.
struct Coder {
    config: Config,
    sizes: Sizes,
    words: Words,
}

/// The coding of its chunks.
#[derive(Debug, Clone, Copy)]
struct Words {
    form: CoderForm,
    word: usize,
    levels: Levels,
    what: &'static str,
}

fn coder(config: Config, what: &'static str, form: CoderForm) -> Result<Box<dyn Stage>> {
    let sizes = Sizes::parse(&config)?;
    let words = Words { form, word: sizes.word, levels: Levels::of(sizes.chunk, sizes.word), what };
    Ok(Box::new(Coder { config, sizes, words }))
}

impl Stage for Coder {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::U8
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn summary(&self) -> Vec<String> {
        self.sizes.summary()
    }

    fn alignment(&self) -> u64 {
        self.sizes.chunk as u64
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let Sizes { chunk, original, .. } = self.sizes;
        Ok(vec![Arc::new(LcChunks::new(self.words, input, chunk as u64, original, cx)?)])
    }
}

impl Coding for Words {
    fn what(&self) -> &'static str {
        self.what
    }

    fn longest(&self, len: usize) -> usize {
        with_bitmaps(len)
    }

    fn decode(&self, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
        let Self { form, word, levels, .. } = *self;
        match form {
            CoderForm::Rre => kept_words::decode(Left::Same, word, levels, body, out),
            CoderForm::Rare => rare_body::decode(Upper::Same, word, levels, body, out),
            CoderForm::Raze => rare_body::decode(Upper::Zero, word, levels, body, out),
            CoderForm::Clog => clog_body::decode(false, word, body, out),
            CoderForm::Hclog => clog_body::decode(true, word, body, out),
        }
    }
}
