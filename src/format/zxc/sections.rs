//! The headers of GLO and GHI payloads: location and coding of their sections.
//!
//! Reference: sections 3.2, 3.3, 8, 9 and 10 of the ZXC reference.
//!
//! Checked: the sections fill the payload and contain all bytes that the sequences need; coded sections decode to at
//! most a block.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use super::decode_error::DecodeError;
use super::version::ZxcVersion;

/// Version 8 and later: minimum number of bytes after the literals.
const SLACK: usize = 32;

const SHORT: DecodeError = DecodeError::new("truncated", "block payload header");
const MISFIT: DecodeError = DecodeError::new("the sections do not fill the payload", "section sizes");
const FEW: DecodeError = DecodeError::new("the section is too short for n_sequences", "section sizes");
const LARGE: DecodeError = DecodeError::new("more than a block", "decoded section size");

/// How literals are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EncLit {
    Raw,
    Rle,
    /// Huffman (PivCo from version 7) with code lengths in the section.
    Huffman,
    /// The same with the code lengths of the dictionary.
    Shared,
}

/// A section of a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    /// The bytes as stored.
    pub(super) stored: &'a [u8],
    /// Position in the payload.
    pub(super) at: usize,
    /// Decoded size.
    pub(super) decoded: usize,
}

/// The sections of a GLO block.
#[derive(Debug)]
pub(super) struct GloSections<'a> {
    pub(super) n_sequences: usize,
    pub(super) enc_lit: EncLit,
    /// Whether the tokens are a `PivCo` section.
    pub(super) coded_tokens: bool,
    /// Whether offsets have one byte rather than two.
    pub(super) short_offsets: bool,
    pub(super) literals: Section<'a>,
    pub(super) tokens: Section<'a>,
    pub(super) offsets: Section<'a>,
    pub(super) extras: Section<'a>,
}

/// The sections of a GHI block.
#[derive(Debug)]
pub(super) struct GhiSections<'a> {
    pub(super) literals: Section<'a>,
    /// `n_sequences` words.
    pub(super) sequences: Section<'a>,
    pub(super) extras: Section<'a>,
}

/// The fields that both headers share, and the rest of the payload.
struct Fields<'a> {
    n_sequences: usize,
    n_literals: usize,
    enc_lit: u8,
    enc_tok: u8,
    enc_off: u8,
    rest: PayloadRest<'a>,
}

/// The rest of a payload, and its position.
#[derive(Clone, Copy)]
struct PayloadRest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> PayloadRest<'a> {
    fn take(&mut self, len: usize, fault: DecodeError) -> Result<Section<'a>, DecodeError> {
        let (stored, bytes) = self.bytes.split_at_checked(len).ok_or(fault.plus(self.at))?;
        let section = Section { stored, at: self.at, decoded: len };
        *self = Self { bytes, at: self.at.saturating_add(len) };
        Ok(section)
    }

    fn u32(&mut self) -> Result<usize, DecodeError> {
        let field = self.take(4, SHORT)?.stored.first_chunk().ok_or(SHORT)?;
        usize::try_from(u32::from_le_bytes(*field)).map_err(|_| LARGE)
    }

    fn all(self) -> Section<'a> {
        Section { stored: self.bytes, at: self.at, decoded: self.bytes.len() }
    }
}

fn fields(version: ZxcVersion, payload: &[u8]) -> Result<Fields<'_>, DecodeError> {
    let mut rest = PayloadRest { bytes: payload, at: 0 };
    let n_sequences = rest.u32()?;
    let n_literals = rest.u32()?;
    let &[enc_lit, enc_tok, enc_match, enc_off] = rest.take(4, SHORT)?.stored else { return Err(SHORT) };
    // Readers of earlier versions, which no longer change, ignore the field.
    if version == ZxcVersion::V9 && enc_match != 0 {
        return Err(DecodeError::unknown("match encoding", enc_match, "enc_mlen").plus(10));
    }
    if version < ZxcVersion::V8 {
        rest.take(4, SHORT)?;
    }
    Ok(Fields { n_sequences, n_literals, enc_lit, enc_tok, enc_off, rest })
}

/// `count * width`. It saturates only if `usize` is narrower than 64 bits; no payload is that large.
fn times(count: usize, width: usize) -> usize {
    count.saturating_mul(width)
}

impl<'a> GloSections<'a> {
    /// Parses the sections of `payload`; the block decodes to at most `block_size` bytes.
    pub(super) fn parse(version: ZxcVersion, payload: &'a [u8], block_size: usize) -> Result<Self, DecodeError> {
        let Fields { n_sequences, n_literals, enc_lit, enc_tok, enc_off, mut rest } = fields(version, payload)?;
        let enc_lit = match enc_lit {
            0 => EncLit::Raw,
            1 => EncLit::Rle,
            2 if version > ZxcVersion::V4 => EncLit::Huffman,
            3 if version > ZxcVersion::V5 => EncLit::Shared,
            _ => return Err(DecodeError::unknown("literal encoding", enc_lit, "enc_lit").plus(8)),
        };
        let coded_tokens = version >= ZxcVersion::V7 && enc_tok == 2;
        if version >= ZxcVersion::V8 && !matches!(enc_tok, 0 | 2) {
            return Err(DecodeError::unknown("token encoding", enc_tok, "enc_tok").plus(9));
        }
        if version >= ZxcVersion::V8 && enc_off > 1 {
            return Err(DecodeError::unknown("offset encoding", enc_off, "enc_off").plus(11));
        }
        if coded_tokens && (n_sequences == 0 || n_sequences > block_size) {
            return Err(DecodeError::new("must be 1 to the block size if tokens are coded", "n_sequences"));
        }
        let short_offsets = enc_off == 1;
        let offset_bytes = times(n_sequences, if short_offsets { 1 } else { 2 });

        let (literals, tokens, offsets, extras);
        if version < ZxcVersion::V8 {
            let mut size = || Ok((rest.u32()?, rest.u32()?));
            let ((c0, r0), (c1, _), (c2, _), (c3, _)) = (size()?, size()?, size()?, size()?);
            literals = Section { decoded: if enc_lit == EncLit::Raw { c0 } else { r0 }, ..rest.take(c0, MISFIT)? };
            tokens = rest.take(c1, MISFIT)?;
            offsets = rest.take(c2, MISFIT)?;
            extras = rest.take(c3, MISFIT)?;
            if !rest.bytes.is_empty() {
                return Err(MISFIT.plus(rest.at));
            }
        } else {
            let lit_size = if enc_lit == EncLit::Raw { n_literals } else { rest.u32()? };
            let tok_size = if coded_tokens { rest.u32()? } else { n_sequences };
            literals = Section { decoded: n_literals, ..rest.take(lit_size, MISFIT)? };
            slack(rest)?;
            tokens = rest.take(tok_size, MISFIT)?;
            offsets = rest.take(offset_bytes, MISFIT)?;
            extras = rest.all();
        }
        if (!coded_tokens && tokens.stored.len() < n_sequences) || offsets.stored.len() < offset_bytes {
            return Err(FEW.plus(tokens.at));
        }
        if enc_lit != EncLit::Raw && literals.decoded > block_size {
            return Err(LARGE.plus(literals.at));
        }
        Ok(Self { n_sequences, enc_lit, coded_tokens, short_offsets, literals, tokens, offsets, extras })
    }
}

impl<'a> GhiSections<'a> {
    /// Parses the sections of `payload`.
    pub(super) fn parse(version: ZxcVersion, payload: &'a [u8]) -> Result<Self, DecodeError> {
        let Fields { n_sequences, n_literals, enc_lit, enc_tok, mut rest, .. } = fields(version, payload)?;
        let words = times(n_sequences, 4);
        if version < ZxcVersion::V8 {
            let mut size = || {
                let low = rest.u32()?;
                rest.u32()?;
                Ok(low)
            };
            let (c0, c1, c2) = (size()?, size()?, size()?);
            let literals = rest.take(c0, MISFIT)?;
            let sequences = rest.take(c1, MISFIT)?;
            let extras = rest.take(c2, MISFIT)?;
            if !rest.bytes.is_empty() {
                return Err(MISFIT.plus(rest.at));
            }
            let stored = sequences.stored.get(..words).ok_or(FEW.plus(sequences.at))?;
            return Ok(Self { literals, sequences: Section { stored, ..sequences }, extras });
        }
        if (enc_lit, enc_tok) != (0, 0) {
            let number = if enc_lit == 0 { enc_tok } else { enc_lit };
            return Err(DecodeError::unknown("GHI encoding", number, "enc_lit and enc_tok").plus(8));
        }
        let literals = rest.take(n_literals, MISFIT)?;
        slack(rest)?;
        Ok(Self { literals, sequences: rest.take(words, MISFIT)?, extras: rest.all() })
    }
}

/// Checks that enough bytes follow the literals.
fn slack(rest: PayloadRest) -> Result<(), DecodeError> {
    if rest.bytes.len() < SLACK {
        return Err(DecodeError::new("fewer than 32 bytes follow the literals", "literals").plus(rest.at));
    }
    Ok(())
}
