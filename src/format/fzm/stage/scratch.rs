//! Scratch memory for decoding, reused by each thread.
//!
//! Limits, per thread: 8 MiB in use and 4 MiB unused.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

/// A buffer from this thread's pool, returned on drop. Its content is left over from earlier use.
#[derive(Debug)]
pub(super) struct ScratchBuffer {
    bytes: Vec<u8>,
    len: usize,
}

/// Buffers kept per thread: usually as many as a graph is deep.
const KEPT: usize = 16;
/// Larger buffers are not kept.
const KEPT_BYTES: usize = 256 << 10;
/// Bytes that a thread may use at a time; real chains use far less.
const MOST: usize = 8 << 20;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static USED: Cell<usize> = const { Cell::new(0) };
}

impl ScratchBuffer {
    /// A buffer of `len` bytes. Callers limit `len` to a step, a block or a piece.
    ///
    /// # Errors
    /// Fails with [`Kind::TooLarge`] if this thread would use more than [`MOST`] bytes.
    pub(super) fn new(len: usize) -> Result<Self> {
        let used = USED.get().saturating_add(len);
        if used > MOST {
            return Err(Error::new(
                Kind::TooLarge { value: to_u64(used), limit: to_u64(MOST) },
                "memory to decode a page",
            ));
        }
        let mut bytes = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        USED.set(used);
        Ok(Self { bytes, len })
    }
}

impl Drop for ScratchBuffer {
    fn drop(&mut self) {
        USED.set(USED.get().saturating_sub(self.len));
        if self.bytes.len() <= KEPT_BYTES {
            let bytes = std::mem::take(&mut self.bytes);
            POOL.with_borrow_mut(|pool| {
                if pool.len() < KEPT {
                    pool.push(bytes);
                }
            });
        }
    }
}

impl Deref for ScratchBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for ScratchBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_has_the_requested_length_and_a_limit() {
        drop(ScratchBuffer::new(100).unwrap());
        let ten = ScratchBuffer::new(10).unwrap();
        assert_eq!(ten.len(), 10);
        assert!(matches!(ScratchBuffer::new(MOST).unwrap_err().kind(), Kind::TooLarge { .. }));
        drop(ten);
        assert_eq!(ScratchBuffer::new(MOST).unwrap().len(), MOST);
        assert_eq!(USED.get(), 0);
    }
}
