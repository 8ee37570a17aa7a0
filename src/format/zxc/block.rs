//! Decoding one block: from its stored bytes to its decoded bytes.
//!
//! Reference: sections 2.6, 3, 8.1, 9 and 11.3 of the ZXC reference.
//!
//! Checked: the block header, even if the index came from a seek table; the block checksum: in versions 4 to 8 over the
//! payload, before it is decoded or served as stored; in version 9 over the decoded bytes.
//! Limits: a payload is at most a block and 64 KiB; it decodes to at most a block.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::source::Source;

use super::block_checksums::{CHECKSUM, check_stored, covers_payloads};
use super::block_extent::BlockExtent;
use super::decode_buffers::DecodeBuffers;
use super::decode_error::DecodeError;
use super::dict::{Dictionary, FrameDictionary};
use super::hash::{fold32, rapidhash};
use super::header::{BlockHeader, FileHeader, ZxcBlockKind, check};
use super::huffman_lengths::{self, HuffmanLengths};
use super::index::ZxcFrame;
use super::sections::{EncLit, GhiSections, GloSections, Section};
use super::version::ZxcVersion;
use super::{huffman, lz, num, pivco, plain_offsets, rle};

/// Padding after a block that is not decoded in place, for copies of fixed size.
const ROOM: usize = 64;

/// Decodes block `index` of `frame` into the front of `dst`; returns the decoded size. The rest of `dst` is
/// unspecified afterwards.
///
/// `dictionary` is the one that the header names; if it is missing, only blocks that may refer to it fail.
///
/// # Errors
/// Fails if the block is corrupt, or does not fit in `dst` or the block size of the frame.
pub(super) fn decode(
    source: &Source,
    frame: &ZxcFrame,
    index: u64,
    dictionary: &FrameDictionary,
    buffers: &mut DecodeBuffers,
    dst: &mut [u8],
) -> Result<usize> {
    let stored = BlockExtent::find(frame, index)?;
    let size = stored.size as usize;
    // Include the bytes after the block: literals are copied in steps that read past their end.
    let mut buffer = std::mem::take(&mut buffers.block);
    let bytes = if let Some(bytes) = source.as_slice(stored.at, (size + lz::PAD) as u64) {
        bytes
    } else {
        buffer.resize(buffer.len().max(size + lz::PAD), 0);
        source.read(stored.at, &mut buffer[..size], "block")?;
        &buffer
    };
    let len = decode_stored(&bytes[..size + lz::PAD], stored, frame, index, dictionary, buffers, dst);
    buffers.block = buffer;
    len
}

/// Decodes a block in memory; `bytes` includes [`lz::PAD`] bytes after it.
fn decode_stored(
    bytes: &[u8],
    stored: BlockExtent,
    frame: &ZxcFrame,
    index: u64,
    dictionary: &FrameDictionary,
    buffers: &mut DecodeBuffers,
    dst: &mut [u8],
) -> Result<usize> {
    let header = &frame.header;
    let Some((head, padded)) = bytes.split_first_chunk() else { return Ok(0) };
    let block = BlockHeader::parse(header.version, *head, stored.at)?;
    if block.physical_size(header, stored.at)? != stored.size || block.kind == ZxcBlockKind::Eof {
        return Err(Error::corrupt("not the size in the seek table", "comp_size").at(stored.at.plus(3)));
    }
    header.check_known(frame.at)?;
    block.check_known(stored.at)?;
    let payload_len = block.comp_size as usize;
    let at = stored.payload_at();
    let (payload, behind) = padded.split_at(payload_len);
    let checksum = u32::from_le_bytes(behind.first_chunk().copied().unwrap_or_default());
    if covers_payloads(frame) {
        check_stored(payload, checksum, at)?;
    }
    let end = dst.len().min(header.block_size as usize);
    let len = match block.kind {
        ZxcBlockKind::Raw => {
            let room = dst.get_mut(..payload_len.min(end));
            let room = room.filter(|r| r.len() == payload_len);
            room.ok_or_else(|| Error::corrupt("larger than a block", "RAW block").at(at))?.copy_from_slice(payload);
            payload_len
        }
        ZxcBlockKind::Num => num::decode(payload, at, &mut dst[..end])?,
        _ => {
            let sequences = Sequences { header, glo: block.kind == ZxcBlockKind::Glo, payload, padded };
            match dictionary.get()? {
                None => {
                    let out = lz::Output { bytes: dst, start: 0, end };
                    sequences.decode(buffers, None, out).map_err(|f| f.error(at))?
                }
                Some(dictionary) => {
                    let mut joined = join(buffers, header, dictionary);
                    let start = dictionary.content.len();
                    let out = lz::Output { bytes: &mut joined, start, end: start + end };
                    let stop = sequences.decode(buffers, dictionary.lengths.as_ref(), out);
                    let len = stop.map_err(|f| f.error(at)).map(|stop| {
                        dst[..stop - start].copy_from_slice(&joined[start..stop]);
                        stop - start
                    });
                    buffers.joined = joined;
                    len?
                }
            }
        }
    };
    if header.is_verifiable() && header.version == ZxcVersion::V9 {
        check(checksum.into(), fold32(rapidhash(&dst[..len], index)).into(), CHECKSUM, at.plus(to_u64(payload_len)))?;
    }
    Ok(len)
}

/// Takes a buffer out of `buffers` that begins with the content of the dictionary and has room for a block after it.
fn join(buffers: &mut DecodeBuffers, header: &FileHeader, dictionary: &Arc<Dictionary>) -> Vec<u8> {
    let mut joined = std::mem::take(&mut buffers.joined);
    let content = &dictionary.content;
    let need = content.len() + header.block_size as usize + ROOM;
    joined.resize(joined.len().max(need), 0);
    if buffers.joined_from.as_ptr() != Arc::as_ptr(dictionary) {
        joined[..content.len()].copy_from_slice(content);
        buffers.joined_from = Arc::downgrade(dictionary);
    }
    joined
}

/// A GLO or GHI block.
struct Sequences<'a> {
    header: &'a FileHeader,
    glo: bool,
    payload: &'a [u8],
    /// The payload and the bytes that follow it.
    padded: &'a [u8],
}

impl Sequences<'_> {
    /// Decodes the payload; returns the end of the output. Fault positions are relative to the payload.
    fn decode(
        &self,
        buffers: &mut DecodeBuffers,
        shared: Option<&HuffmanLengths>,
        out: lz::Output,
    ) -> Result<usize, DecodeError> {
        let DecodeBuffers { literals: literal_buffer, tokens: token_buffer, offsets: offset_buffer, merge, .. } =
            buffers;
        let Self { header: &FileHeader { version, .. }, payload, padded, .. } = *self;
        let varint_len = if version <= ZxcVersion::V5 { 5 } else { 3 };
        if !self.glo {
            let GhiSections { literals, sequences, extras } = GhiSections::parse(version, payload)?;
            let input = lz::Input {
                literals: &padded[literals.at..],
                n_literals: literals.decoded,
                extras: extras.stored,
                varint_len,
            };
            let words = match version {
                ZxcVersion::V4 => plain_offsets::less_one::<4>(sequences.stored, offset_buffer),
                _ => Ok(sequences.stored),
            };
            return words.and_then(|words| lz::ghi(words, &input, out)).map_err(|f| f.plus(sequences.at));
        }
        let glo = GloSections::parse(version, payload, self.header.block_size as usize)?;
        let GloSections { literals, tokens, offsets, extras, .. } = glo;
        let n_literals = literals.decoded;
        let literal_bytes = if glo.enc_lit == EncLit::Raw {
            &padded[literals.at..]
        } else {
            literal_buffer.resize(literal_buffer.len().max(n_literals + lz::PAD), 0);
            if n_literals > 0 || version == ZxcVersion::V9 {
                decode_literals(version, glo.enc_lit, literals, shared, merge, literal_buffer)
                    .map_err(|f| f.plus(literals.at))?;
            }
            literal_buffer.as_slice()
        };
        let token_bytes = if glo.coded_tokens {
            token_buffer.resize(token_buffer.len().max(glo.n_sequences), 0);
            let dst = &mut token_buffer[..glo.n_sequences];
            let (code, rest) = own_lengths(version, tokens.stored).map_err(|f| f.plus(tokens.at))?;
            pivco::decode(&code, rest, dst, merge).map_err(|f| f.plus(tokens.at + huffman_lengths::BYTES))?;
            &*dst
        } else {
            &tokens.stored[..glo.n_sequences]
        };
        let input = lz::Input { literals: literal_bytes, n_literals, extras: extras.stored, varint_len };
        let offset_bytes = match (version, glo.short_offsets) {
            (ZxcVersion::V4, true) => plain_offsets::less_one::<1>(offsets.stored, offset_buffer),
            (ZxcVersion::V4, false) => plain_offsets::less_one::<2>(offsets.stored, offset_buffer),
            _ => Ok(offsets.stored),
        };
        let offset_bytes = offset_bytes.map_err(|f| f.plus(offsets.at))?;
        lz::glo(token_bytes, offset_bytes, glo.short_offsets, &input, out).map_err(|f| f.plus(tokens.at))
    }
}

/// Splits a section into the code at its front and the rest.
fn own_lengths(version: ZxcVersion, section: &[u8]) -> Result<(HuffmanLengths, &[u8]), DecodeError> {
    let short = DecodeError::new("the section ends inside it", "Huffman code lengths");
    let (nibbles, rest) = section.split_first_chunk::<{ huffman_lengths::BYTES }>().ok_or(short)?;
    Ok((HuffmanLengths::parse(nibbles, version.code_bits())?, rest))
}

/// Decodes coded literals to the front of `dst`, which has [`lz::PAD`] spare bytes. Fault positions are relative to the
/// section.
fn decode_literals(
    version: ZxcVersion,
    enc_lit: EncLit,
    section: Section,
    shared: Option<&HuffmanLengths>,
    merge: &mut [Vec<u8>; 2],
    dst: &mut [u8],
) -> Result<(), DecodeError> {
    let (own, code, rest, skip);
    let n = section.decoded;
    match enc_lit {
        EncLit::Raw => return Ok(()),
        EncLit::Rle => {
            let left = rle::decode(section.stored, dst, n)?;
            return if version == ZxcVersion::V9 && !left.is_empty() {
                Err(DecodeError::new("bytes after the last run", "RLE literals")
                    .plus(section.stored.len() - left.len()))
            } else {
                Ok(())
            };
        }
        _ if n == 0 => return Ok(()),
        EncLit::Huffman => {
            (own, rest) = own_lengths(version, section.stored)?;
            (code, skip) = (&own, huffman_lengths::BYTES);
        }
        EncLit::Shared => {
            (code, rest) =
                (shared.ok_or(DecodeError::new("the dictionary has no Huffman table", "enc_lit"))?, section.stored);
            skip = 0;
        }
    }
    let dst = &mut dst[..n];
    let decoded =
        if version < ZxcVersion::V7 { huffman::decode(code, rest, dst) } else { pivco::decode(code, rest, dst, merge) };
    decoded.map_err(|f| f.plus(skip))
}
