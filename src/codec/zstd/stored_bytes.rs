//! The stored bytes of a frame, read ahead.
#![forbid(unsafe_code)]

use std::slice::SliceIndex;

use crate::bytes::{FileOffset, to_u64};
use crate::error::Result;
use crate::source::Source;

/// Bytes read from the file at a time: a few blocks.
const READ_AHEAD: u64 = 512 << 10;

/// A part of the stored bytes of a frame.
#[derive(Debug)]
pub(super) struct StoredBytes {
    bytes: Vec<u8>,
    at: FileOffset,
    /// Where the frame ends in the file.
    end: FileOffset,
}

impl StoredBytes {
    /// No bytes yet of a frame that ends at `end`.
    pub(super) fn new(end: FileOffset) -> Self {
        Self { bytes: Vec::new(), at: FileOffset(0), end }
    }

    /// Continues with another frame. The bytes stay: neighbouring frames share a read.
    pub(super) fn renew(&mut self, end: FileOffset) {
        self.end = end;
    }

    /// Where the frame ends in the file.
    pub(super) fn end(&self) -> FileOffset {
        self.end
    }

    /// Ensures that it contains `len` bytes from `at` on, reading ahead; returns their index.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) fn ensure(&mut self, source: &Source, at: FileOffset, len: usize) -> Result<usize> {
        let start = at.0.wrapping_sub(self.at.0);
        if to_u64(self.bytes.len()) < start.saturating_add(to_u64(len)) {
            let size = READ_AHEAD.max(to_u64(len)).min(self.end.0.saturating_sub(at.0));
            self.at = at;
            self.bytes.resize(size as usize, 0);
            if let Err(e) = source.read(at, &mut self.bytes, "block") {
                // Partly overwritten.
                self.bytes.clear();
                return Err(e);
            }
        }
        Ok((at.0 - self.at.0) as usize)
    }

    /// The bytes in `range`; none if it is outside.
    pub(super) fn get(&self, range: impl SliceIndex<[u8], Output = [u8]>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, range: impl SliceIndex<[u8], Output = [u8]>) -> &mut [u8] {
        self.bytes.get_mut(range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::error::Error;
    use crate::platform::os_error;
    use crate::source::Origin;

    /// A file with a second half that cannot be read once; until then, other bytes are left in the buffer.
    #[derive(Debug)]
    struct FailsOnce(Vec<u8>, AtomicBool);

    impl Origin for FailsOnce {
        fn len(&self) -> u64 {
            to_u64(self.0.len())
        }

        fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
            if at.0 > self.len() / 2 && !self.1.swap(true, Ordering::Relaxed) {
                dst.fill(0xAA);
                return Err(Error::io(os_error(libc::EIO), what));
            }
            dst.copy_from_slice(&self.0[at.0 as usize..][..dst.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_read_that_failed_leaves_no_bytes_of_another_place_behind() {
        let file: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let source = Source::of("file", FailsOnce(file.clone(), AtomicBool::new(false)));
        let mut stored = StoredBytes::new(FileOffset(source.len()));
        assert_eq!(stored.ensure(&source, FileOffset(0), 10).unwrap(), 0);
        assert!(stored.ensure(&source, FileOffset(2_000_000), 10).is_err());
        let start = stored.ensure(&source, FileOffset(0), 10).unwrap();
        assert_eq!(stored.get(start..start + 10), &file[..10]);
    }
}
