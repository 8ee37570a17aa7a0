//! Schedules each batch on the CPU or the device, whichever is predicted to be faster from measured times.
//!
//! A decoder calls [`Scheduler::wants`] in `Batched::batch`; if it returns false the batch size is 1, and all cores share
//! the pieces. It calls [`Scheduler::device`] in `Batched::decode_many`, and reports how long each side took, for single
//! pieces too. An [`Attempt`] on the device that ends without a report has failed.
//!
//! Without a driver of a GPU no batch is wanted, so that readahead stays as small as the CPU needs it.
//!
//! CPU time is proportional to bytes. Device time is too, plus a fixed cost per batch, so small batches go to the CPU.
//! Starting on the device costs as much as some CPU decoding: it is tried once the CPU has decoded for as long, so a
//! wasted attempt at most doubles the time, and only if as much is left to decode. The cost of starting is measured on
//! an open device: the time by which the first batch of any earlier pipeline, which loads the kernels, exceeds later
//! ones. For one that is not open, typical machines provide an estimate.
//!
//! The slower side is retried now and then, for less than a twentieth of the time. A required device gets every batch.
//! Single pieces always go to the CPU.
//!
//! Invariant: this module reads no clock; decoders report their times.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Device, Gpu};

/// Seconds that opening a device and loading its kernels are taken to cost until they are measured.
const START: f64 = 0.5;
/// Weight of older measurements at each new one.
const MEMORY: f64 = 0.8;
/// The slower side gets about one batch in this many, if it takes as long; fewer if it takes longer.
const SELDOM: f64 = 20.0;

/// Where a batch is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A core of the CPU.
    Cpu,
    /// The device.
    Device,
}

/// Measured times for the batches of one pipeline.
#[derive(Debug)]
pub struct Scheduler {
    gpu: Arc<Gpu>,
    /// Bytes of the whole stream.
    total: u64,
    state: Mutex<SchedulerState>,
}

#[derive(Debug, Default)]
struct SchedulerState {
    cpu: LinearModel,
    device: LinearModel,
    /// CPU seconds spent, and how many must be spent before a failed device is retried.
    spent: f64,
    until: f64,
    /// Bytes decoded so far, on either side.
    done: u64,
    /// Seconds of the first batch on the device, until the second one shows how much of that was the start.
    first: Option<(u64, f64)>,
    /// Batches decoded by the device, and whether a trial is in progress.
    batches: u64,
    trying: bool,
    /// Consecutive decisions for the faster side, since the other was last tried.
    settled: f64,
}

impl Scheduler {
    /// For a pipeline of `total` bytes that `gpu` may decode.
    pub fn new(gpu: &Arc<Gpu>, total: u64) -> Self {
        Self { gpu: gpu.clone(), total, state: Mutex::default() }
    }

    /// Seconds that starting on the device costs, as far as is known.
    fn start(&self) -> f64 {
        if self.gpu.is_open() { self.gpu.loading().unwrap_or(0.0) } else { START }
    }

    /// Whether a batch of `bytes` bytes would go to the device now. Cheap; opens nothing.
    pub fn wants(&self, bytes: u64) -> bool {
        self.gpu.is_possible()
            && (self.gpu.is_required() || self.lock().choose(bytes, self.total, self.start()) == Backend::Device)
    }

    /// The device, if it should decode a batch of `bytes` bytes, and the attempt, which the caller ends. Opens the
    /// device on first use.
    pub fn device(&self, bytes: u64) -> Option<(Arc<dyn Device>, Attempt<'_>)> {
        if !self.gpu.is_possible() {
            return None;
        }
        let mut state = self.lock();
        if state.decide(bytes, self.total, self.start()) == Backend::Cpu && !self.gpu.is_required() {
            return None;
        }
        state.trying |= state.batches < 2;
        drop(state);
        // From here on a failure is recorded, also if opening the device panics.
        let attempt = Attempt { scheduler: self, bytes, has_succeeded: false };
        Some((self.gpu.device().ok()?, attempt))
    }

    /// Records that `backend` decoded `bytes` bytes in one call that took `time`.
    pub fn record(&self, backend: Backend, bytes: u64, time: Duration) {
        self.gpu.count(backend, bytes);
        let seconds = time.as_secs_f64();
        let mut state = self.lock();
        state.done = state.done.saturating_add(bytes);
        match backend {
            Backend::Cpu => {
                state.spent += seconds;
                state.cpu.learn(bytes, seconds);
            }
            Backend::Device => {
                state.trying = false;
                state.batches += 1;
                if state.batches > 1 {
                    state.device.learn(bytes, seconds);
                    if let Some((bytes, seconds)) = state.first.take() {
                        let usual = state.device.predict(bytes).unwrap_or(seconds);
                        self.gpu.record_loading((seconds - usual).max(0.0));
                    }
                } else {
                    state.first = Some((bytes, seconds));
                }
            }
        }
    }

    /// Records that the device failed to decode a batch.
    fn failed(&self) {
        let mut state = self.lock();
        state.trying = false;
        // It may fail every time: wait until the CPU has decoded twice as long before retrying.
        state.until = 2.0 * state.spent;
    }

    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that the device decodes. Dropping it records a failure, unless [`Attempt::record`] was called: a decoder
/// that returns early or panics leaves no attempt open, which would keep the other batches from the device.
#[derive(Debug)]
pub struct Attempt<'a> {
    scheduler: &'a Scheduler,
    bytes: u64,
    has_succeeded: bool,
}

impl Attempt<'_> {
    /// Records that the device has decoded the batch, in `time`.
    pub fn record(mut self, time: Duration) {
        self.has_succeeded = true;
        self.scheduler.record(Backend::Device, self.bytes, time);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_succeeded {
            self.scheduler.failed();
        }
    }
}

impl SchedulerState {
    /// Chooses the side for `bytes` bytes.
    fn choose(&self, bytes: u64, total: u64, start: f64) -> Backend {
        let Some(cpu) = self.cpu.proportional(bytes) else { return Backend::Cpu };
        let Some(device) = self.device.predict(bytes) else {
            // Decoded completely: it is being read again, and there is no telling how often.
            let left = total.checked_sub(self.done).and_then(|left| self.cpu.proportional(left));
            let pays = self.spent >= self.until.max(start) && left.is_none_or(|left| left >= start);
            return if pays && !self.trying { Backend::Device } else { Backend::Cpu };
        };
        let (best, cost, other) =
            if device < cpu { (Backend::Device, device, cpu) } else { (Backend::Cpu, cpu, device) };
        let due = self.settled * cost > SELDOM * other;
        match best {
            _ if !due => best,
            Backend::Device => Backend::Cpu,
            Backend::Cpu => Backend::Device,
        }
    }

    /// As [`SchedulerState::choose`], and records the decision.
    fn decide(&mut self, bytes: u64, total: u64, start: f64) -> Backend {
        let backend = self.choose(bytes, total, start);
        let (Some(cpu), Some(device)) = (self.cpu.proportional(bytes), self.device.predict(bytes)) else {
            return backend;
        };
        let best = if device < cpu { Backend::Device } else { Backend::Cpu };
        self.settled = if backend == best { self.settled + 1.0 } else { 0.0 };
        backend
    }
}

/// Seconds as a linear function of bytes: weighted least squares, recent measurements weigh most.
#[derive(Debug, Default)]
struct LinearModel {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl LinearModel {
    fn learn(&mut self, bytes: u64, seconds: f64) {
        let x = bytes as f64;
        for (sum, new) in [
            (&mut self.weight, 1.0),
            (&mut self.x, x),
            (&mut self.y, seconds),
            (&mut self.xx, x * x),
            (&mut self.xy, x * seconds),
        ] {
            *sum = *sum * MEMORY + new;
        }
    }

    /// Predicted seconds for `bytes`, without a fixed cost.
    fn proportional(&self, bytes: u64) -> Option<f64> {
        (self.x > 0.0).then(|| self.y / self.x * bytes as f64)
    }

    /// Predicted seconds for `bytes`, with a fixed cost per batch.
    fn predict(&self, bytes: u64) -> Option<f64> {
        let proportional = self.proportional(bytes)?;
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let spread = self.xx / self.weight - x * x;
        // With one batch size the fixed cost is unknown; assume that a smaller batch takes as long.
        if spread < 0.01 * x * x {
            return Some(proportional.max(y));
        }
        let slope = ((self.xy / self.weight - x * y) / spread).clamp(0.0, y / x);
        Some((y + slope * (bytes as f64 - x)).max(0.0))
    }
}

#[cfg(test)]
mod tests;
