//! A queue of a device whose launches go through a function.

use std::ops::Range;
use std::time::Duration;

use fzmfs::gpu::{Arg, DeviceResult, Download, Kernel, Memory, Queue};

/// The queue, and what does each of its launches.
pub(crate) struct Launches<F> {
    queue: Box<dyn Queue>,
    launch: F,
}

impl<F: FnMut(&mut dyn Queue, Kernel, u32, u32, &[Arg]) -> DeviceResult + Send> Launches<F> {
    /// `queue`, where `launch` is called instead of [`Queue::launch`], with the queue and the arguments.
    pub(crate) fn new(queue: Box<dyn Queue>, launch: F) -> Self {
        Self { queue, launch }
    }
}

impl<F: FnMut(&mut dyn Queue, Kernel, u32, u32, &[Arg]) -> DeviceResult + Send> Queue for Launches<F> {
    fn alloc(&mut self, len: u64) -> DeviceResult<Memory> {
        self.queue.alloc(len)
    }

    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> DeviceResult {
        self.queue.zero(memory, range)
    }

    fn upload(&mut self, to: &Memory, at: u64, bytes: &[u8]) -> DeviceResult {
        self.queue.upload(to, at, bytes)
    }

    fn copy(&mut self, from: &Memory, from_at: u64, to: &Memory, to_at: u64, len: u64) -> DeviceResult {
        self.queue.copy(from, from_at, to, to_at, len)
    }

    fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        (self.launch)(&mut *self.queue, kernel, grid, block, args)
    }

    fn download(&mut self, parts: &mut [Download]) -> DeviceResult {
        self.queue.download(parts)
    }

    fn finish(&mut self) -> DeviceResult {
        self.queue.finish()
    }

    fn mark(&mut self) -> DeviceResult {
        self.queue.mark()
    }

    fn times(&mut self) -> DeviceResult<Vec<Duration>> {
        self.queue.times()
    }
}
