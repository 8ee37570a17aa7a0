//! Byte streams that are pulled window by window: the edges of an FZM graph.
//!
//! A stored segment is a stream; the inverse of a stage is a stream made from the streams of its
//! forward outputs. Reading a window pulls just the windows of the inputs that it needs.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::cuda::Node;
use crate::error::Result;

/// A stream of known length, any window of which can be produced, from any thread.
pub trait Stream: Send + Sync {
    /// Bytes of the whole stream; known without decoding.
    fn len(&self) -> u64;

    /// Whether the stream holds no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one independent unit: a window that starts at a multiple of it and ends at one, or at
    /// the end, is produced without decoding anything twice. At least 1.
    fn unit(&self) -> u64;

    /// Fills `dst` with the bytes from `at` on; `at + dst.len()` is at most [`Stream::len`].
    ///
    /// # Errors
    /// What is broken in the bytes that this window comes from.
    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()>;

    /// How the front of the stream divides into bricks, where it is an array whose units are not
    /// contiguous (`LorenzoQuant` of rank 2 and 3 over long rows). `None` where windows are as good.
    fn bricks(&self) -> Option<Bricks> {
        None
    }

    /// Fills `dst` with brick `index` in C order of the brick, zeros outside the array.
    /// Only asked where [`Stream::bricks`] is some; `dst` is exactly one brick long.
    ///
    /// # Errors
    /// As [`Stream::read`].
    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        let _ = index;
        self.read(0, dst)
    }

    /// Whether the first read decodes all of it, once (it is then kept within the budget).
    fn is_whole(&self) -> bool {
        false
    }

    /// How a device makes it, where one can.
    fn on_device(self: Arc<Self>) -> Option<Node> {
        None
    }

    /// How a device makes its bricks, one after the other. Only asked where [`Stream::bricks`] is some.
    fn bricks_on_device(self: Arc<Self>) -> Option<Node> {
        None
    }
}

/// An array at the front of a stream, divided into bricks in C order of their grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bricks {
    /// Bytes of an element.
    pub itemsize: u64,
    /// Elements of the array per dimension, slowest first.
    pub shape: Vec<u64>,
    /// Elements of a brick per dimension, slowest first; about 1 MiB together.
    pub brick: Vec<u64>,
}

impl Bricks {
    /// Bricks that differ in their place in the slowest dimension follow each other at this distance.
    pub fn layer(&self) -> u64 {
        let across = self.shape.iter().zip(&self.brick).skip(1).map(|(n, brick)| n.div_ceil((*brick).max(1)));
        across.fold(1_u64, u64::saturating_mul).max(1)
    }
}
