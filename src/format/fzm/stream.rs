//! Byte streams that are pulled window by window: the edges of an FZM graph.
//!
//! A stored segment is a stream; the inverse of a stage is a stream made from the streams of its forward outputs.
//! Reading a window reads only the windows of the inputs that it needs.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use super::inverse::Inverse;
use crate::error::{Error, Result};

/// A stream of known length that can produce any window, from any thread.
pub trait ByteStream: Send + Sync {
    /// Bytes of the whole stream; known without decoding.
    fn len(&self) -> u64;

    /// Whether the stream is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one independent unit, at least 1: a window that starts at a multiple of it and ends at one, or at the
    /// end, is produced without decoding anything twice.
    fn unit(&self) -> u64;

    /// Fills `dst` with the bytes at `at`; `at + dst.len()` must be at most [`ByteStream::len`].
    ///
    /// # Errors
    /// Fails if the bytes that this window depends on are invalid.
    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()>;

    /// The bricks at the start of the stream, if it is an array with non-contiguous units (`LorenzoQuant` of rank 2 and
    /// 3 with long rows). `None` if linear windows are as efficient.
    fn bricks(&self) -> Option<Bricks> {
        None
    }

    /// Fills `dst` with brick `index`, in C order within the brick, with zeros outside the array. Only called if
    /// [`ByteStream::bricks`] is `Some`; `dst` has the length of one brick.
    ///
    /// # Errors
    /// As for [`ByteStream::read`].
    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        let _ = dst;
        Err(Error::corrupt(format!("the stream has no brick {index}"), "brick"))
    }

    /// Work to be done once before a window can be produced, besides the window itself.
    fn setup(&self) -> Setup {
        Setup::None
    }

    /// Whether the first read decodes the whole stream, once, and keeps it within the budget.
    fn is_whole(&self) -> bool {
        false
    }

    /// Whether it consists of stored bytes: reading them decodes nothing.
    fn is_stored(&self) -> bool {
        false
    }

    /// How another decoder can compute the stream; `None` if it must be read.
    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}

/// The work before a window of a stream can be produced; may take seconds if a stream is large. Later variants include
/// the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setup {
    /// Nothing of note.
    None,
    /// The first window, wherever it is, needs an index or an array that is built from whole streams.
    Once,
    /// Besides, a window needs all earlier bytes to be decoded once.
    Scan,
}

/// How a stream is computed from another one.
#[derive(Clone)]
pub struct Derivation {
    /// The inverse of the stage.
    pub inverse: Inverse,
    /// Its input: the stream of the stage's first forward output.
    pub input: Arc<dyn ByteStream>,
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.inverse, self.input.len())
    }
}

/// An array at the start of a stream, divided into bricks in C order of their grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bricks {
    /// Bytes of an element.
    pub itemsize: u64,
    /// Elements of the array per dimension, slowest first.
    pub shape: Vec<u64>,
    /// Elements of a brick per dimension, slowest first; about 1 MiB in total.
    pub brick: Vec<u64>,
}

impl Bricks {
    /// Bricks per layer: the distance between neighbors along the slowest dimension.
    pub fn layer(&self) -> u64 {
        let across = self.shape.iter().zip(&self.brick).skip(1).map(|(n, brick)| n.div_ceil((*brick).max(1)));
        across.fold(1_u64, u64::saturating_mul).max(1)
    }
}
