//! Codecs: decode a stream into a buffer of exactly its decoded size.
//!
//! Reference: section 8. Supported: `BloscLZ`, LZ4 (and LZ4HC, the same format), zlib, Zstandard, NDLZ.
//! Checked: the exact output length; that the input ends where the codec says.
//! Limits: only the contexts of zlib and Zstandard are allocated, and reused by the decoder that owns them.
#![forbid(unsafe_code)]

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{self, DCtx, DDict};

use crate::bytes::FileOffset;
use crate::codec::pace::{Pace, STRIDE};
use crate::codec::{lz4, zstd as frames};
use crate::error::{Error, Result};

use super::header::Codec;
use super::stream_error::StreamError;
use super::{blosclz, ndlz, registry};

/// Approximate size of a zlib decoder.
const ZLIB: usize = 48 << 10;

/// A supported codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    BloscLz,
    Lz4,
    Zlib,
    Zstd,
    /// NDLZ with cells of this side.
    NdLz {
        side: u8,
    },
}

impl Algorithm {
    /// The algorithm named by the header of the chunk at `at`.
    pub(super) fn of(codec: Codec, at: FileOffset) -> Result<Self> {
        let Codec { version, format, id, meta } = codec;
        let unknown = |part: String| Err(Error::unknown(part, "codec id").at(at.plus(0x16)));
        if format < 5 && version != 1 {
            let part = format!("version {version} of {}", codec.name());
            return Err(Error::unknown(part, "versionlz").at(at.plus(1)));
        }
        Ok(match (format, id) {
            (0, _) | (6, 0) => Self::BloscLz,
            (1, _) | (6, 1 | 2) => Self::Lz4,
            (3, _) | (6, 4) => Self::Zlib,
            (4, _) | (6, 5) => Self::Zstd,
            (6, 32) if matches!(meta, 4 | 8) => Self::NdLz { side: meta },
            (6, 32) => return unknown(format!("NDLZ with cells of side {meta}")),
            (2, _) => return Err(Error::unsupported("the codec snappy", "codec format").at(at.plus(2))),
            (6, id) if !registry::is_registered(id) => return unknown(format!("codec {id}")),
            (6, id) => {
                let which = format!("the codec {} (id {id})", registry::codec_name(id));
                return Err(Error::unsupported(which, "codec id").at(at.plus(0x16)));
            }
            _ => return Err(Error::unknown(format!("codec format {format}"), "codec format").at(at.plus(2))),
        })
    }

    /// Maximum size that `len` bytes of a stream can decode to. Claimed sizes are checked against it before memory is
    /// allocated.
    pub(super) fn max_decoded(self, len: u64) -> u64 {
        // Maximum output per input byte: an extension byte of an LZ length adds 255; deflate gives 258 bytes for two
        // bits; a Zstandard block of 4 bytes gives 128 KiB; an NDLZ token of 2 bytes gives a cell of 64.
        let per_byte = match self {
            Self::BloscLz | Self::Lz4 => 256,
            Self::Zlib => 1032,
            Self::Zstd => 32 << 10,
            Self::NdLz { .. } => 32,
        };
        len.saturating_add(32).saturating_mul(per_byte)
    }
}

/// The dictionary of a chunk, prepared for its codec.
pub(super) enum ChunkDictionary {
    Zstd(DDict<'static>),
    Lz4(Vec<u8>),
}

impl ChunkDictionary {
    /// Prepares the bytes of a chunk's dictionary for `algorithm`.
    pub(super) fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Result<Self> {
        match algorithm {
            Algorithm::Zstd => DDict::try_create(&bytes)
                .map(Self::Zstd)
                .ok_or_else(|| Error::corrupt("not a Zstandard dictionary", "dictionary")),
            Algorithm::Lz4 => Ok(Self::Lz4(bytes)),
            _ => Err(Error::corrupt("allowed only with LZ4 and Zstandard", "dictionary")),
        }
    }
}

impl fmt::Debug for ChunkDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd(_) => "ChunkDictionary::Zstd",
            Self::Lz4(_) => "ChunkDictionary::Lz4",
        })
    }
}

/// Decoder state that is reused from stream to stream.
#[derive(Default)]
pub(super) struct Contexts {
    zstd: Option<DCtx<'static>>,
    zlib: Option<Decompress>,
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contexts")
    }
}

impl Contexts {
    /// Decodes `src`, filling `dst` completely; calls `pace` at least after every two [`STRIDE`]s of output.
    pub(super) fn decode(
        &mut self,
        algorithm: Algorithm,
        dictionary: Option<&ChunkDictionary>,
        src: &[u8],
        dst: &mut [u8],
        pace: Pace<'_>,
    ) -> Result<(), StreamError> {
        match algorithm {
            Algorithm::BloscLz => blosclz::decode(src, dst, pace),
            Algorithm::Lz4 => lz4(dictionary, src, dst, pace),
            Algorithm::Zlib => self.zlib(src, dst, pace),
            Algorithm::Zstd => self.zstd(dictionary, src, dst, pace),
            Algorithm::NdLz { side } => ndlz::decode(side, src, dst, pace),
        }
    }

    /// Size of the contexts in memory.
    pub(super) fn footprint(&self) -> usize {
        let zlib = if self.zlib.is_some() { ZLIB } else { 0 };
        self.zstd.as_ref().map_or(0, DCtx::sizeof) + zlib
    }

    fn zlib(&mut self, src: &[u8], dst: &mut [u8], pace: Pace<'_>) -> Result<(), StreamError> {
        let context = self.zlib.get_or_insert_with(|| Decompress::new(true));
        context.reset(true);
        let want = dst.len();
        loop {
            let (ip, op) = (context.total_in() as usize, context.total_out() as usize);
            let end = want.min(op + STRIDE);
            let flush = if end == want { FlushDecompress::Finish } else { FlushDecompress::None };
            let status = context.decompress(src.get(ip..).unwrap_or_default(), &mut dst[op..end], flush);
            let (at, made) = (context.total_in() as usize, context.total_out() as usize);
            return match status {
                Ok(Status::StreamEnd) if made == want => Ok(()),
                Ok(Status::StreamEnd) => Err(StreamError::new("the zlib stream does not fill the block", at)),
                Ok(_) if end < want && (at, made) != (ip, op) => {
                    pace();
                    continue;
                }
                Ok(_) if made == want => Err(StreamError::new("the zlib stream does not end with the block", at)),
                Ok(_) => Err(StreamError::new("the zlib stream is truncated", at)),
                Err(_) => Err(StreamError::new("not a zlib stream", at)),
            };
        }
    }

    fn zstd(
        &mut self,
        dictionary: Option<&ChunkDictionary>,
        src: &[u8],
        dst: &mut [u8],
        pace: Pace<'_>,
    ) -> Result<(), StreamError> {
        // Accept a frame, or a skippable frame before it. Older magics would select decoders of old drafts.
        if !src.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) && src.get(1..4) != Some(&[0x2a, 0x4d, 0x18]) {
            return Err(StreamError::new("not a Zstandard frame", 0));
        }
        let unfilled = StreamError::new("the Zstandard frame does not fill the block", src.len());
        if dst.len() > 2 * STRIDE {
            let dictionary = match dictionary {
                Some(ChunkDictionary::Zstd(dictionary)) => Some(dictionary),
                _ => None,
            };
            return match frames::decode_in_place(src, dictionary, dst, pace) {
                Ok(made) if made == dst.len() => Ok(()),
                Ok(_) => Err(unfilled),
                Err(e) => {
                    let at = e.offset().map_or(0, |at| at.0 as usize);
                    Err(StreamError::new("the Zstandard frame is corrupt or does not fit the block", at))
                }
            };
        }
        let context = match &mut self.zstd {
            Some(context) => context,
            none => none.insert(DCtx::try_create().ok_or(StreamError::new("no memory for Zstandard", 0))?),
        };
        let made = match dictionary {
            Some(ChunkDictionary::Zstd(dictionary)) => context.decompress_using_ddict(dst, src, dictionary),
            _ => context.decompress(dst, src),
        };
        match made {
            Ok(made) if made == dst.len() => Ok(()),
            Ok(_) => Err(unfilled),
            Err(code) => Err(StreamError::new(zstd_safe::get_error_name(code), 0)),
        }
    }
}

fn lz4(dictionary: Option<&ChunkDictionary>, src: &[u8], dst: &mut [u8], pace: Pace<'_>) -> Result<(), StreamError> {
    let dictionary = match dictionary {
        Some(ChunkDictionary::Lz4(dictionary)) => dictionary.as_slice(),
        _ => &[],
    };
    lz4::decode_paced(src, dictionary, dst, pace).map_err(|e| StreamError::new(e.why, e.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(algorithm: Algorithm, src: &[u8], len: usize) -> Result<Vec<u8>, StreamError> {
        let mut dst = vec![0xAA; len];
        Contexts::default().decode(algorithm, None, src, &mut dst, &mut || ()).map(|()| dst)
    }

    #[test]
    fn every_codec_fills_the_output_exactly_or_fails() {
        let text: Vec<u8> = (0..5000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        // One input decoded in one call, one in strides.
        each(&text);
        each(&text.repeat(2 * STRIDE / text.len() + 9));
    }

    fn each(text: &[u8]) {
        let mut zlib = flate2::read::ZlibEncoder::new(text, flate2::Compression::new(6));
        let mut zlib_bytes = Vec::new();
        std::io::Read::read_to_end(&mut zlib, &mut zlib_bytes).unwrap();
        let rows = [
            (Algorithm::Lz4, lz4_flex::block::compress(text)),
            (Algorithm::Zlib, zlib_bytes),
            (Algorithm::Zstd, zstd::bulk::compress(text, 3).unwrap()),
        ];
        for (algorithm, bytes) in rows {
            let n = text.len();
            assert!(decode(algorithm, &bytes, n).unwrap() == text, "{algorithm:?}");
            assert!(decode(algorithm, &bytes, n - 1).is_err(), "{algorithm:?}: one byte less");
            assert!(decode(algorithm, &bytes, n + 1).is_err(), "{algorithm:?}: one byte more");
            assert!(decode(algorithm, &[], n).is_err(), "{algorithm:?}: nothing");
            for len in (1..bytes.len()).step_by(bytes.len() / 50) {
                assert!(decode(algorithm, &bytes[..len], n).is_err(), "{algorithm:?}: cut at {len}");
            }
            assert!(algorithm.max_decoded(bytes.len() as u64) >= n as u64);
        }
    }

    #[test]
    fn a_codec_that_cannot_be_decoded_is_named_with_its_field() {
        let of = |version, format, id| Algorithm::of(Codec { version, format, id, meta: 0 }, FileOffset(0x100));
        for (format, id, want) in [
            (2, 0, "not supported: the codec snappy (codec format, at byte 0x102)"),
            (6, 33, "not supported: the codec zfp fixed accuracy (id 33) (codec id, at byte 0x116)"),
            (6, 38, "not supported: the codec openzl (id 38) (codec id, at byte 0x116)"),
            (6, 200, "not supported: the codec user-defined codec (id 200) (codec id, at byte 0x116)"),
        ] {
            assert_eq!(of(1, format, id).unwrap_err().to_string(), want);
        }
        for (version, format, id, part, at) in [
            (1, 5, 0, "codec format 5 is unknown to ", 0x102),
            (1, 7, 0, "codec format 7 is unknown to ", 0x102),
            (1, 6, 3, "codec 3 is unknown to ", 0x116),
            (1, 6, 45, "codec 45 is unknown to ", 0x116),
            (1, 6, 32, "NDLZ with cells of side 0 is unknown to ", 0x116),
            (2, 1, 1, "version 2 of lz4 is unknown to ", 0x101),
        ] {
            let error = of(version, format, id).unwrap_err();
            assert!(error.is_unknown() && error.to_string().starts_with(part), "{error}");
            assert_eq!(error.offset(), Some(FileOffset(at)), "{error}");
        }
        assert_eq!(of(1, 6, 5).unwrap(), Algorithm::Zstd);
    }
}
