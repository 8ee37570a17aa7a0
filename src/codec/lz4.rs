//! LZ4 blocks: literals and matches of up to 65,535 bytes back, into an earlier dictionary if there is one.
//!
//! Reference: the LZ4 block format. A block is a list of sequences: a token, literals, and but for the last
//! a match.
//! Checked: every length against both ends, every distance against what is decoded and the dictionary.
#![forbid(unsafe_code)]

use super::lz;

/// What is wrong with a block, and at which of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// What is wrong.
    pub why: &'static str,
    /// The position in the block.
    pub at: usize,
}

/// Shortest match.
const MIN_MATCH: usize = 4;
/// A nibble of a token that says that more bytes of length follow.
const MORE: usize = 15;
/// Decodes the block `src`, filling `dst` completely; `dictionary` is what went before `dst`.
///
/// # Errors
/// [`Broken`] when `src` is no block, or one of another length; `dst` then holds unspecified bytes.
///
/// # Examples
/// ```
/// let mut dst = [0; 12];
/// fzmfs::codec::lz4::decode(&[0x32, b'a', b'b', b'c', 3, 0, 0x30, b'x', b'y', b'z'], &[], &mut dst).unwrap();
/// assert_eq!(&dst, b"abcabcabcxyz");
/// ```
pub fn decode(src: &[u8], dictionary: &[u8], dst: &mut [u8]) -> Result<(), Broken> {
    let broken = |why, at| Broken { why, at };
    let (mut ip, mut op) = (0, 0);
    loop {
        let Some(&token) = src.get(ip) else { return Err(broken("the LZ4 block is cut", ip)) };
        ip += 1;
        let mut literals = usize::from(token >> 4);
        if literals == MORE {
            literals += length(src, &mut ip)?;
        }
        if !few(src, ip, dst, op, literals) {
            let (from, to) = (src.get(ip..), dst.get_mut(op..));
            match (from.and_then(|s| s.get(..literals)), to.and_then(|d| d.get_mut(..literals))) {
                (Some(from), Some(to)) => to.copy_from_slice(from),
                (None, _) => return Err(broken("LZ4 literals beyond the stream", ip)),
                (_, None) => return Err(broken("LZ4 literals beyond the block", ip)),
            }
        }
        ip += literals;
        op += literals;
        if ip == src.len() {
            break;
        }
        let Some(&offset) = lz::window::<2>(src, ip) else { return Err(broken("the LZ4 block is cut", ip)) };
        let distance = usize::from(u16::from_le_bytes(offset));
        ip += 2;
        let mut len = usize::from(token) % 16;
        if len < MORE && distance >= 16 && near(dst, op, distance, len + MIN_MATCH) {
            op += len + MIN_MATCH;
            continue;
        }
        if len == MORE {
            len += length(src, &mut ip)?;
        }
        len += MIN_MATCH;
        if distance > op && distance - op <= dictionary.len() {
            // The match starts in the dictionary; what is left of it starts the block.
            let from = &dictionary[dictionary.len() - (distance - op)..];
            let early = len.min(from.len());
            match dst.get_mut(op..).and_then(|d| d.get_mut(..early)) {
                Some(to) => to.copy_from_slice(&from[..early]),
                None => return Err(broken("a match beyond the block", ip)),
            }
            op += early;
            len -= early;
            if len == 0 {
                continue;
            }
        }
        lz::repeat(dst, op, distance, len).map_err(|why| broken(why, ip))?;
        op += len;
    }
    if op == dst.len() { Ok(()) } else { Err(broken("the LZ4 block does not fill the block", ip)) }
}

/// Copies up to 32 literals, and some bytes more, if they lie away from both ends.
#[inline]
fn few(src: &[u8], ip: usize, dst: &mut [u8], op: usize, literals: usize) -> bool {
    if literals > 32 {
        return false;
    }
    let Some(from) = lz::window::<32>(src, ip) else { return false };
    let Some(to) = lz::window_mut::<32>(dst, op) else { return false };
    // In two parts: most often the first is enough.
    to[..16].copy_from_slice(&from[..16]);
    if literals > 16 {
        to[16..].copy_from_slice(&from[16..]);
    }
    true
}

/// Copies a match of at most 18 bytes from at least 16 back, and some bytes more, if it lies away from both ends.
#[inline]
fn near(dst: &mut [u8], op: usize, distance: usize, len: usize) -> bool {
    let Some((before, after)) = dst.split_at_mut_checked(op) else { return false };
    let Some(from) = op.checked_sub(distance).and_then(|start| before.get(start..)) else { return false };
    let (Some(first), Some(to)) = (from.first_chunk::<16>(), after.first_chunk_mut::<32>()) else { return false };
    to[..16].copy_from_slice(first);
    if len > 16 {
        lz::step::<2>(dst, op - distance + 16, op + 16);
    }
    true
}

/// The bytes that add to a length: up to and with the first that is not 255.
fn length(src: &[u8], ip: &mut usize) -> Result<usize, Broken> {
    let mut sum = 0;
    loop {
        let Some(&more) = src.get(*ip) else { return Err(Broken { why: "the LZ4 block is cut", at: *ip }) };
        *ip += 1;
        sum += usize::from(more);
        if more != 255 {
            return Ok(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::noise;
    use super::*;

    /// Bytes of the sorts that make short and long literals, near and far matches, runs.
    fn samples() -> Vec<Vec<u8>> {
        let text: Vec<u8> = (0..9000_u32).flat_map(|i| (i * i / 7).to_string().into_bytes()).collect();
        let coarse = noise(50_000).iter().map(|b| b >> 6).collect();
        let runs = (0..300_usize).flat_map(|i| vec![i as u8; i * 7 % 500]).collect();
        let pairs = (0..40_000_u32).flat_map(|i| [(i / 1000) as u8, 3]).collect();
        let mixed = [noise(5000), text[..5000].to_vec(), noise(300), text[..5000].to_vec()].concat();
        vec![vec![], vec![7], noise(3000), text, coarse, runs, pairs, mixed]
    }

    #[test]
    fn what_another_encoder_writes_is_read() {
        for bytes in samples() {
            let block = lz4_flex::block::compress(&bytes);
            let mut dst = vec![0xAA; bytes.len()];
            decode(&block, &[], &mut dst).unwrap();
            assert!(dst == bytes);
            assert!(decode(&block, &[], &mut vec![0; bytes.len() + 1]).is_err());
            if !bytes.is_empty() {
                assert!(decode(&block, &[], &mut vec![0; bytes.len() - 1]).is_err());
            }
            for len in (0..block.len()).step_by(1 + block.len() / 100) {
                assert!(decode(&block[..len], &[], &mut dst).is_err(), "cut at {len}");
            }
        }
    }

    #[test]
    fn matches_reach_into_the_dictionary() {
        for bytes in samples() {
            let dictionary = [noise(1000), bytes[..bytes.len().min(2000)].to_vec()].concat();
            let block = lz4_flex::block::compress_with_dict(&bytes, &dictionary);
            let mut dst = vec![0xAA; bytes.len()];
            decode(&block, &dictionary, &mut dst).unwrap();
            assert!(dst == bytes);
        }
    }

    #[test]
    fn the_two_decoders_agree_about_damaged_blocks() {
        let mut seed = 1_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as usize
        };
        for bytes in samples().into_iter().filter(|b| b.len() > 2) {
            let good = lz4_flex::block::compress(&bytes[..bytes.len().min(3000)]);
            for _ in 0..300 {
                let mut block = good.clone();
                let at = next() % block.len();
                block[at] = next() as u8;
                let (mut ours, mut theirs) = (vec![0; 3000], vec![0; 3000]);
                // The other decoder says how long what it decoded is.
                let Ok(len) = lz4_flex::block::decompress_into(&block, &mut theirs) else { continue };
                if decode(&block, &[], &mut ours[..len]).is_ok() {
                    assert!(ours[..len] == theirs[..len]);
                }
            }
        }
    }
}
