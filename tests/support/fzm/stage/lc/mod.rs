//! The coders of the LC framework: streams of chunks (section 1 of the LC stages; section 5.9 for the first RZE).

mod body;
pub(super) mod golomb_rice;
pub(super) mod gpulz;
mod rze;
pub(super) mod tupl;

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::Record;
use crate::spec::Params;

/// The stored form of a chunk, and whether it is raw.
type Chunk = (Vec<u8>, bool);

/// Encodes every `size` bytes of `input` with `encode`.
fn chunks(input: &[u8], size: usize, encode: impl Fn(&[u8]) -> Chunk + Sync + Send) -> Vec<u8> {
    if input.is_empty() {
        return Vec::new();
    }
    let chunks: Vec<Chunk> = input.par_chunks(size).map(encode).collect();
    let mut out = Record::default().u32(input.len() as u32).u32(chunks.len() as u32);
    for (body, raw) in &chunks {
        out = out.u32(body.len() as u32 | u32::from(*raw) << 31);
    }
    let mut out = out.0;
    out.reserve(chunks.iter().map(|(body, _)| body.len()).sum::<usize>() + 4);
    for (body, _) in &chunks {
        out.extend(body);
    }
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The body of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// RZE before it knew words.
    FirstRze,
    Rze,
    Rre,
    Rare,
    Raze,
    Clog,
    Hclog,
}

/// RZE, RRE, RARE, RAZE, CLOG and HCLOG.
#[derive(Debug)]
pub(crate) struct Coder {
    kind: u16,
    name: &'static str,
    form: Form,
    chunk: usize,
    word: usize,
}

impl Coder {
    pub(crate) fn new(name: &str, p: &mut Params) -> Result<Self> {
        let (kind, name, form) = match name {
            "rze" => (18, "rze", Form::Rze),
            "rre" => (26, "rre", Form::Rre),
            "rare" => (27, "rare", Form::Rare),
            "raze" => (28, "raze", Form::Raze),
            "clog" => (29, "clog", Form::Clog),
            _ => (30, "hclog", Form::Hclog),
        };
        let chunk = p.one_of("chunk", &[16384, 8192, 4096])?;
        let word = p.take("w", usize::from(form != Form::Rze))?;
        match (form, word) {
            (Form::Rze, 0) if chunk == 16384 => Ok(Self { kind, name, form: Form::FirstRze, chunk, word: 4 }),
            (_, 1 | 2 | 4 | 8) => Ok(Self { kind, name, form, chunk, word }),
            _ => Err(format!("w={word}: must be 1, 2, 4 or 8")),
        }
    }

    fn encode_chunk(&self, chunk: &[u8]) -> Chunk {
        let body = match self.form {
            Form::FirstRze => return rze::encode(chunk),
            Form::Rze => body::kept(chunk, self.chunk, self.word, true),
            Form::Rre => body::kept(chunk, self.chunk, self.word, false),
            Form::Rare => body::rare(chunk, self.chunk, self.word, true),
            Form::Raze => body::rare(chunk, self.chunk, self.word, false),
            Form::Clog => Some(body::clog(chunk, self.word, false)),
            Form::Hclog => Some(body::clog(chunk, self.word, true)),
        };
        match body {
            Some(body) if body.len() < chunk.len() => (body, false),
            _ => (chunk.to_vec(), true),
        }
    }
}

impl Stage for Coder {
    fn kind(&self) -> u16 {
        self.kind
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn alignment(&self) -> usize {
        self.chunk
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let config = Record::default().u32(self.chunk as u32).u8(self.word as u8).u32(input.len() as u32).0;
        Ok(Encoded::one(config, chunks(input, self.chunk, |chunk| self.encode_chunk(chunk))))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(input, ports)
    }
}
