//! The chunks of RZE before it knew words (section 5.9): zero bytes left out, and their bitmaps thinned three times.

use super::Chunk;
use super::body::{changes, sift};

/// Bytes of a chunk.
const CHUNK: usize = 16384;

pub(super) fn encode(chunk: &[u8]) -> Chunk {
    let (b1, data) = sift(chunk, |_, byte| byte != 0);
    if data.is_empty() {
        return (Vec::new(), false);
    }
    let (b2, k1) = changes(&b1);
    let (b3, k2) = changes(&b2);
    let (mut b4, k3) = changes(&b3);
    b4.resize(4, 0);
    let body = [data, k1, k2, k3, b4, (chunk.len() as u16).to_le_bytes().to_vec()].concat();
    if body.len() > CHUNK { (chunk.to_vec(), true) } else { (body, false) }
}
