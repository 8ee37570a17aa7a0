//! A queue of a device whose launches go through another hand.

use std::ops::Range;
use std::time::Duration;

use fzmfs::gpu::{Arg, DeviceResult, Download, Kernel, Memory, Queue};

/// What does the launches of a [`Launches`]; a function with the arguments of [`Launcher::launch`] does no more.
pub(crate) trait Launcher: Send {
    /// Is called instead of [`Queue::launch`], with the queue and the arguments.
    fn launch(&mut self, queue: &mut dyn Queue, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult;

    /// Is called after each download: all work is done.
    fn downloaded(&mut self, _: &mut dyn Queue) -> DeviceResult {
        Ok(())
    }
}

impl<F: FnMut(&mut dyn Queue, Kernel, u32, u32, &[Arg]) -> DeviceResult + Send> Launcher for F {
    fn launch(&mut self, queue: &mut dyn Queue, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        self(queue, kernel, grid, block, args)
    }
}

/// The queue, and what does its launches.
pub(crate) struct Launches<L> {
    queue: Box<dyn Queue>,
    launcher: L,
}

impl<L: Launcher> Launches<L> {
    /// `queue`, where `launcher` does the launches.
    pub(crate) fn new(queue: Box<dyn Queue>, launcher: L) -> Self {
        Self { queue, launcher }
    }
}

impl<L: Launcher> Queue for Launches<L> {
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

    #[expect(unsafe_code, reason = "as that of the queue")]
    unsafe fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        self.launcher.launch(&mut *self.queue, kernel, grid, block, args)
    }

    fn download(&mut self, parts: &mut [Download]) -> DeviceResult {
        self.queue.download(parts)?;
        self.launcher.downloaded(&mut *self.queue)
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
