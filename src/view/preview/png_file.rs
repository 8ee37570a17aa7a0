//! Writes a picture as a PNG of a size that follows from its width and height.
//!
//! The pixels are stored without compression, one byte each, and a chunk that readers skip pads the texts. So the size
//! of the file is known before there is a picture.
#![forbid(unsafe_code)]

use png::chunk::ChunkType;

use crate::bytes::to_u64;
use crate::error::{Error, Result};

/// A picture of 256 colours; the first is transparent.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Row by row.
    pub(super) pixels: Vec<u8>,
    /// Red, green and blue.
    pub(super) palette: Vec<u32>,
    /// The meaning of the colours.
    pub(super) legend: Legend,
}

/// The meaning of colours.
#[derive(Debug)]
pub(super) struct Legend {
    /// In words.
    pub(super) text: String,
    /// For programs: the two ends of the range, or the values.
    pub(super) key: Text,
}

/// A keyword and its text.
pub(super) type Text = (&'static str, String);

/// Bytes of a chunk besides its content.
const CHUNK: u64 = 12;
/// Bytes of all texts with their padding, and the most of one text.
const TEXTS: u64 = 4096;
const LONGEST: usize = 512;
/// Ancillary, private, safe to copy.
const FILLER: ChunkType = ChunkType(*b"fiLl");
/// Largest stored block of deflate, and its header.
const BLOCK: u64 = 65535;
const BLOCK_HEAD: u64 = 5;

/// Bytes of the file.
pub(super) fn len(width: u64, height: u64) -> u64 {
    let raw = (width + 1) * height;
    // The header and the checksum of zlib are 6 bytes.
    let stored = raw + raw.div_ceil(BLOCK) * BLOCK_HEAD + 6;
    let (signature, header, palette, transparent) = (8, 13, 3 * 256, 1);
    signature + header + palette + transparent + stored + 5 * CHUNK + TEXTS
}

/// Whether the size of a file follows from its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Known,
    /// It is as small as it can quickly be made.
    Small,
}

/// The PNG of `picture`, with `texts`.
///
/// # Errors
/// Fails only if the picture contradicts itself.
pub(super) fn encode(picture: &Picture, texts: &[Text], size: Size) -> Result<Vec<u8>> {
    try_encode(picture, texts, size).map_err(|e| Error::corrupt(e.to_string(), "picture"))
}

fn try_encode(picture: &Picture, texts: &[Text], size: Size) -> std::result::Result<Vec<u8>, png::EncodingError> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, picture.width, picture.height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(
        picture.palette.iter().flat_map(|&rgb| [16, 8, 0].map(|at| (rgb >> at) as u8)).collect::<Vec<_>>(),
    );
    encoder.set_trns(vec![0]);
    if size == Size::Known {
        encoder.set_compression(png::Compression::NoCompression);
    } else {
        encoder.set_compression(png::Compression::Fast);
        encoder.set_filter(png::Filter::Up);
    }
    let mut free = TEXTS - CHUNK;
    let mut writer = encoder.write_header()?;
    for (key, text) in texts {
        let text: String = text.chars().take(LONGEST).filter(char::is_ascii).collect();
        let len = CHUNK + to_u64(key.len() + 1 + text.len());
        if let Some(left) = free.checked_sub(len) {
            writer.write_text_chunk(&png::text_metadata::TEXtChunk::new(*key, text))?;
            free = left;
        }
    }
    if size == Size::Known {
        writer.write_chunk(FILLER, &vec![0; free as usize])?;
    }
    writer.write_image_data(&picture.pixels)?;
    writer.finish()?;
    Ok(out)
}
