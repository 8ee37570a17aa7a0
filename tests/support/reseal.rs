//! How to mend the checksums of a changed file, so that it is the decoders that see the change: for the
//! hostile-input tests and the fuzz targets. One arm a format that has such checksums.

/// Mends the checksums of a changed file of `format`, where that can be done without decoding.
pub(crate) fn reseal(format: &str, bytes: &mut [u8]) {
    // `None`: nothing, or nothing more, to mend.
    let _ = match format {
        "fzm" => fzm(bytes),
        "zxc" => zxc(bytes),
        _ => None,
    };
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Payload first, then the header, which holds the payload's. Left alone where a field points outside.
fn fzm(bytes: &mut [u8]) -> Option<()> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (version, buffers, flags) = (u16_at(4)?, usize::from(u16_at(6)?), u16_at(38)?);
    if version <= 0xFF || version.trailing_zeros() >= 8 {
        return None;
    }
    let stages = u32::from_le_bytes(*bytes.get(32..)?.first_chunk()?) as usize;
    let (len, start) = (usize::try_from(u64_at(bytes, 16)?).ok()?, usize::try_from(u64_at(bytes, 24)?).ok()?);
    let payload = bytes.get(start..).map(|rest| crc32fast::hash(&rest[..len.min(rest.len())]));
    if let (Some(crc), true) = (payload, flags & 1 != 0) {
        bytes.get_mut(72..76)?.copy_from_slice(&crc.to_le_bytes());
    }
    let tables = stages.checked_add(buffers)?.checked_mul(256)?.checked_add(80)?;
    if flags & 2 != 0 {
        bytes.get_mut(76..80)?.fill(0);
        let crc = crc32fast::hash(bytes.get(..tables)?);
        bytes.get_mut(76..80)?.copy_from_slice(&crc.to_le_bytes());
    }
    Some(())
}

/// The hashes of the file header and of the block headers of the first frame. Checksums of blocks stay: what
/// has none is what is changed unseen.
fn zxc(bytes: &mut [u8]) -> Option<()> {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    const MIX: u64 = 0xD2D8_4A61_D2D8_4A61;
    let version = *bytes.get(4)?;
    let xs = |mut h: u64| {
        h ^= h << 13;
        h ^= h >> 7;
        h ^= h << 17;
        (h >> 32) ^ h
    };
    let head = bytes.first_chunk_mut::<16>()?;
    head[14..].fill(0);
    let (a, b) = (u64_at(head, 0)?, u64_at(head, 8)?);
    let hash = match version {
        5..=8 => {
            let r = xs(a ^ b ^ MIX) as u32;
            ((r >> 16) ^ r) as u16
        }
        9 => ((a ^ MIX).wrapping_mul(MIX).wrapping_add(b).wrapping_add(GOLDEN).wrapping_mul(GOLDEN) >> 48) as u16,
        _ => return None,
    };
    head[14..].copy_from_slice(&hash.to_le_bytes());
    let trailer = if head[6] & 0x80 == 0 { 0 } else { 4 };
    let mut at = 16_usize;
    loop {
        let block = bytes.get_mut(at..)?.first_chunk_mut::<8>()?;
        block[7] = 0;
        let word = u64::from_le_bytes(*block) ^ GOLDEN;
        block[7] = if version == 9 { (word.wrapping_mul(GOLDEN) >> 56) as u8 } else { xs(word) as u8 };
        let size = u32::from_le_bytes(*block[3..].first_chunk()?) as usize;
        if block[0] >= 254 {
            return Some(());
        }
        at = at.checked_add(8 + size + trailer)?;
    }
}
