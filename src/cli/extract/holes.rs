//! Writes a new file without the blocks that are zeros: they become holes, as in the file that was archived.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// Holes are multiples of this.
const BLOCK: usize = 64 << 10;

/// Writes `bytes` where `file` is; a hole at its end is there only after [`end`].
///
/// # Errors
/// From write(2) and lseek(2).
pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while let Some(first) = rest.chunks(BLOCK).next().map(is_zero) {
        let run = rest.chunks(BLOCK).take_while(|block| is_zero(block) == first).map(<[u8]>::len).sum();
        let (now, later) = rest.split_at_checked(run).unwrap_or((rest, &[]));
        if first {
            file.seek(SeekFrom::Current(i64::try_from(run).unwrap_or(i64::MAX)))?;
        } else {
            file.write_all(now)?;
        }
        rest = later;
    }
    Ok(())
}

/// Ends the file where it is.
///
/// # Errors
/// From lseek(2) and ftruncate(2).
pub(super) fn end(file: &mut File) -> io::Result<()> {
    let len = file.stream_position()?;
    file.set_len(len)
}

fn is_zero(block: &[u8]) -> bool {
    block.chunks(256).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}
