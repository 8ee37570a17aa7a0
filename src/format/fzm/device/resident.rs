//! Decodes ranges of a stream into device memory that stays there, batch by batch.
//!
//! Several threads read and upload, each with its own queue, so that copies of one overlap with kernels of others. A
//! batch is decoded as for the host, and its result is copied to its place on the device.
//!
//! The checksum is verified meanwhile; nothing is returned before its verdict.
//!
//! Limits: besides the result, device memory for [`WORKERS`] batches at a time, or for one if that fails.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::decoder::BATCH;
use super::fallback::{Fallback, OpResult};
use super::job::Span;
use super::plan::Plan;
use crate::bytes::{to_u64, to_usize};
use crate::checksum::ChecksumGate;
use crate::error::{Error, Kind, Result};
use crate::format::DeviceStream;
use crate::format::fzm::stream::ByteStream;
use crate::gpu::scheduler::Backend;
use crate::gpu::{Device, DeviceBuffer, DeviceError, ForeignStream, Gpu};
use crate::limits::zeroed;
use crate::parallel;

/// Batches at a time, where there are as many cores: to read and to upload takes longer than the kernels, and 4 threads
/// leave most of the bus idle.
const WORKERS: u64 = 8;
/// Bytes that the CPU decodes at a time to find an error.
const STRIDE: u64 = 1 << 20;

/// A stream, and how a device decodes all of it in its order.
pub struct Resident {
    stream: Arc<dyn ByteStream>,
    gate: Option<ChecksumGate>,
    gpu: Arc<Gpu>,
    plan: OnceLock<Plan>,
}

impl Resident {
    /// For `stream`; its bytes are served only behind `gate`.
    pub fn new(stream: &Arc<dyn ByteStream>, gate: Option<&ChecksumGate>, gpu: &Arc<Gpu>) -> Arc<Self> {
        let (stream, gpu) = (Arc::clone(stream), Arc::clone(gpu));
        Arc::new(Self { stream, gate: gate.cloned(), gpu, plan: OnceLock::new() })
    }

    /// Fills a buffer with `range`, `workers` batches at a time.
    fn fill(
        &self,
        device: &Arc<dyn Device>,
        range: &Range<u64>,
        stream: Option<ForeignStream>,
        workers: u64,
    ) -> OpResult<DeviceBuffer> {
        let plan = self.plan.get_or_init(|| Plan::whole(&self.stream));
        let (buffer, memory) = DeviceBuffer::alloc(device, range.end - range.start, stream)?;
        let target = Span::new(memory, range.clone());
        // Batches end where units do, so that no unit is decoded twice.
        let unit = self.stream.unit().max(1);
        let batch = unit.saturating_mul((BATCH / unit).max(1));
        let (first, last) = (range.start / batch, range.end.div_ceil(batch));
        let next = AtomicU64::new(first);
        let work = || -> OpResult {
            let mut queue = device.queue()?;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= last {
                    return Ok(());
                }
                let start = range.start.max(n.saturating_mul(batch));
                let end = range.end.min((n + 1).saturating_mul(batch));
                plan.decode_to(&**device, &mut *queue, &target, start..end)?;
            }
        };
        // After an error the others stop too.
        let work = || work().inspect_err(|_| next.store(last, Ordering::Relaxed));
        let others = to_usize(workers.min(last - first).saturating_sub(1), "threads")?;
        parallel::together(others, work).map(|_| buffer)
    }

    /// The error that decoding `range` on the CPU gives.
    fn error_of(&self, range: Range<u64>) -> Error {
        let search = || -> Result<()> {
            let mut buffer = zeroed(STRIDE.min(range.end - range.start), "window")?;
            let mut at = range.start;
            while at < range.end {
                let n = STRIDE.min(range.end - at);
                self.stream.read(at, buffer.get_mut(..to_usize(n, "window")?).unwrap_or_default())?;
                at += n;
            }
            Ok(())
        };
        search().err().unwrap_or_else(|| Error::unsupported("a GPU cannot decode it, the CPU can", "device"))
    }
}

impl DeviceStream for Resident {
    fn decode(&self, range: Range<u64>, stream: Option<ForeignStream>) -> Result<DeviceBuffer> {
        let device = self.gpu.device().map_err(|why| usage(why.to_string()))?;
        let gate = self.gate.as_ref();
        ChecksumGate::wait_before(gate, false)?;
        let cores = thread::available_parallelism().map_or(1, |cores| to_u64(cores.get()));
        let mut made = self.fill(&device, &range, stream, cores.min(WORKERS));
        if matches!(made, Err(Fallback::Device(DeviceError::OutOfMemory { .. }))) {
            made = self.fill(&device, &range, stream, 1);
        }
        ChecksumGate::wait_before(gate, range.end >= self.stream.len())?;
        match made {
            Ok(buffer) => {
                self.gpu.count(Backend::Device, buffer.len());
                Ok(buffer)
            }
            Err(Fallback::Device(DeviceError::OutOfMemory { need })) => Err(usage(format!(
                "needs {need} bytes more than the GPU memory that is free; gpu_memory= allows {}",
                device.memory_limit()
            ))),
            Err(Fallback::Device(why)) => {
                self.gpu.record_failure(&why);
                Err(usage(why.to_string()))
            }
            Err(Fallback::Invalid | Fallback::Unavailable) => Err(self.error_of(range)),
        }
    }
}

fn usage(why: String) -> Error {
    Error::new(Kind::Usage(why.into()), "device")
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resident({} bytes on {:?})", self.stream.len(), self.gpu)
    }
}
