//! What the hostile-input tests and the fuzz targets know of each format: how long a header is, and how to
//! mend the checksums after a change, so that it is the decoders that see it. One arm a format.

/// How many bytes from the start of a file of `format` describe the rest.
pub(crate) fn header(format: &str, bytes: &[u8]) -> usize {
    match format {
        "fzm" => u64_at(bytes, 24).and_then(|n| usize::try_from(n).ok()).unwrap_or(80),
        _ => 128,
    }
}

/// Mends the checksums of a changed file of `format`, where that can be done without decoding.
pub(crate) fn reseal(format: &str, bytes: &mut [u8]) {
    if format == "fzm" {
        // `None`: nothing to mend.
        let _ = fzm(bytes);
    }
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
