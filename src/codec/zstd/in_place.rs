//! Decodes frames in memory into a buffer that also serves as the window, so that no history is allocated.
//!
//! libzstd gets a few blocks at a time, so that the caller can release memory in between.
#![forbid(unsafe_code)]

use zstd::zstd_safe::{DCtx, DDict, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::bytes::{Cursor, FileOffset};
use crate::codec::pace::{Pace, STRIDE};
use crate::error::{Error, Result};

use super::frame_scan::skippable;
use super::header::{Generation, Header, ZstdBlockHeader};
use super::libzstd::MAX_WINDOW_LOG;

/// Decodes the modern frames in `src`, one after the other, into `dst`; returns the number of bytes written. All frames
/// use `dictionary`. Calls `pace` after about every [`STRIDE`] bytes of output.
///
/// # Errors
/// Fails if a frame is malformed or does not fit; the offset is relative to `src`.
pub fn decode_in_place(src: &[u8], dictionary: Option<&DDict<'_>>, dst: &mut [u8], pace: Pace<'_>) -> Result<usize> {
    let lib = |code: usize, at: FileOffset| Error::corrupt(get_error_name(code), "frame").at(at);
    let start = FileOffset(0);
    let mut ctx = DCtx::try_create().ok_or_else(|| Error::no_memory("frame"))?;
    for parameter in [DParameter::StableOutBuffer(true), DParameter::WindowLogMax(MAX_WINDOW_LOG)] {
        ctx.set_parameter(parameter).map_err(|code| lib(code, start))?;
    }
    if let Some(dictionary) = dictionary {
        ctx.ref_ddict(dictionary).map_err(|code| lib(code, start))?;
    }
    let mut cur = Cursor::new(src, start);
    let mut done = 0;
    while !cur.is_empty() {
        let (frame, at) = (cur.clone(), cur.at());
        let magic = cur.u32_le("magic number")?;
        if skippable(magic).is_some() {
            let len = cur.u32_le("skippable frame size")?;
            cur.take(len as usize, "skippable frame")?;
            continue;
        }
        if Generation::of(magic) != Some(Generation::Modern) {
            return Err(Error::corrupt("not a Zstandard frame", "magic number").at(at));
        }
        let header = Header::read(&mut cur, Generation::Modern)?;
        let out = dst.get_mut(done..).unwrap_or_default();
        let (mut fed, mut made) = (frame, 0);
        loop {
            let last = blocks(&mut cur, &header)?;
            let input = fed.take((cur.at().0 - fed.at().0) as usize, "blocks")?;
            let mut input = InBuffer::around(input);
            let mut output = OutBuffer::around_pos(out, made);
            while input.pos() < input.src.len() {
                let before = (input.pos(), output.pos());
                ctx.decompress_stream(&mut output, &mut input).map_err(|code| lib(code, fed.at()))?;
                if before == (input.pos(), output.pos()) {
                    return Err(Error::corrupt("libzstd makes no progress", "frame").at(fed.at()));
                }
            }
            made = output.pos();
            pace();
            if last {
                break;
            }
        }
        done += made;
    }
    Ok(done)
}

/// Skips blocks until they may produce [`STRIDE`] bytes; returns whether the last block of the frame is among them.
fn blocks(cur: &mut Cursor<'_>, header: &Header) -> Result<bool> {
    let mut most = 0;
    while most < STRIDE {
        let block = ZstdBlockHeader::read(cur, header)?;
        cur.take(block.stored(), "block")?;
        most += block.content().map_or(header.max_block(), |n| n as usize).max(1);
        if block.last {
            if header.has_checksum {
                cur.take(4, "content checksum")?;
            }
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_decode_into_the_buffer_that_is_their_window() {
        let text: Vec<u8> = (0..3_000_000_u32).flat_map(|i| (i / 3 * (i & 15)).to_le_bytes()).collect();
        let mut src = Vec::new();
        for part in text.chunks(5_000_001) {
            src.extend([0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            std::io::Write::write_all(&mut encoder, part).unwrap();
            src.extend(encoder.finish().unwrap());
        }
        let (mut dst, mut calls) = (vec![0; text.len()], 0);
        assert_eq!(decode_in_place(&src, None, &mut dst, &mut || calls += 1).unwrap(), text.len());
        assert!(dst == text && calls >= text.len() / STRIDE, "{calls}");
        for dst in [&mut vec![0; text.len() - 1], &mut vec![0; 10]] {
            assert!(decode_in_place(&src, None, dst, &mut || ()).is_err());
        }
        for cut in [1, 12, 20, 100_000, src.len() - 5, src.len() - 1] {
            assert!(decode_in_place(&src[..cut], None, &mut dst, &mut || ()).is_err(), "cut at {cut}");
        }
        let bulk = zstd::bulk::compress(&text, 1).unwrap();
        assert_eq!(decode_in_place(&bulk, None, &mut dst, &mut || ()).unwrap(), text.len());
    }
}
