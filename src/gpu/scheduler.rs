//! Schedules each batch on the CPU or the device, whichever is predicted to be faster from measured times.
//!
//! A decoder calls [`Scheduler::wants`] in `Blob::batch`; if it returns false the batch size is 1, and all cores share
//! the pieces. It calls [`Scheduler::device`] in `Blob::decode_many`, and reports how long each side took, for single
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
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

    fn lock(&self) -> MutexGuard<'_, State> {
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

impl State {
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

    /// As [`State::choose`], and records the decision.
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
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::gpu::DeviceError;
    use crate::gpu::tests::Nothing;

    const MIB: u64 = 1 << 20;

    /// A simulated machine: seconds per byte on the CPU; per batch and per byte on the device.
    #[derive(Clone, Copy)]
    struct Machine {
        cpu: f64,
        start: f64,
        byte: f64,
    }

    impl Machine {
        fn time(self, backend: Backend, bytes: u64) -> Duration {
            let (start, byte) = if backend == Backend::Cpu { (0.0, self.cpu) } else { (self.start, self.byte) };
            Duration::from_secs_f64(start + byte * bytes as f64)
        }

        /// Decodes a batch where `scheduler` says, and returns where.
        fn decode(self, scheduler: &Scheduler, bytes: u64) -> Backend {
            let Some((_, attempt)) = scheduler.device(bytes) else {
                scheduler.record(Backend::Cpu, bytes, self.time(Backend::Cpu, bytes));
                return Backend::Cpu;
            };
            // Opening the device and loading the kernels takes a while.
            let first = scheduler.lock().batches == 0;
            attempt.record(self.time(Backend::Device, bytes) + Duration::from_millis(if first { 500 } else { 0 }));
            Backend::Device
        }

        /// How many of `batches` batches go to the device.
        fn share(self, scheduler: &Scheduler, bytes: u64, batches: usize) -> usize {
            (0..batches).filter(|_| self.decode(scheduler, bytes) == Backend::Device).count()
        }
    }

    fn scheduler() -> Scheduler {
        Scheduler::new(&Gpu::new(|| Ok(Arc::new(Nothing))), u64::MAX)
    }

    /// 1 GB/s on the CPU; 20 GB/s plus 200 microseconds per batch on the device.
    const FAST: Machine = Machine { cpu: 1e-9, start: 2e-4, byte: 0.05e-9 };

    #[test]
    fn the_device_is_opened_after_500_ms_of_decoding() {
        let scheduler = scheduler();
        let decoded = |ms| scheduler.record(Backend::Cpu, 32 * MIB, Duration::from_millis(ms));
        decoded(499);
        assert!(!scheduler.wants(32 * MIB) && !scheduler.gpu.is_open());
        decoded(2);
        assert!(scheduler.device(32 * MIB).is_some() && scheduler.gpu.is_open());
    }

    #[test]
    fn the_device_is_not_opened_for_a_little_work() {
        let scheduler = scheduler();
        assert_eq!(FAST.share(&scheduler, 32 * MIB, 8), 0, "0.27 seconds");
        assert!(!scheduler.gpu.is_open());
        assert!(FAST.share(&scheduler, 32 * MIB, 100) > 90);
        assert!(scheduler.gpu.is_open());
    }

    #[test]
    fn the_device_is_not_opened_for_the_little_that_is_left() {
        // 1 GB/s: 0.55 seconds in all, 0.05 of them left when it would be opened.
        let total = 550_000_000;
        let scheduler = Scheduler::new(&Gpu::new(|| Ok(Arc::new(Nothing))), total);
        assert_eq!(FAST.share(&scheduler, 32 * MIB, (total / (32 * MIB)) as usize), 0);
        assert!(!scheduler.gpu.is_open());
        // It is read again and again.
        assert!(FAST.share(&scheduler, 32 * MIB, 100) > 70);
    }

    #[test]
    fn an_open_device_is_tried_as_soon_as_it_may_pay() {
        let first = scheduler();
        FAST.share(&first, 32 * MIB, 100);
        // Loading took half a second, which was measured.
        let loading = first.gpu.loading().unwrap();
        assert!((loading - 0.5).abs() < 0.01, "{loading}");
        let second = Scheduler::new(&first.gpu, u64::MAX);
        let cpu = Duration::from_secs_f64(loading / 2.0);
        second.record(Backend::Cpu, 32 * MIB, cpu);
        assert!(!second.wants(32 * MIB));
        second.record(Backend::Cpu, 32 * MIB, cpu * 2);
        assert!(second.wants(32 * MIB));
    }

    #[test]
    fn a_faster_device_gets_the_batches_and_a_slower_one_does_not() {
        for (machine, on_device) in [
            (FAST, true),
            (Machine { byte: 2e-9, ..FAST }, false),
            (Machine { start: 1.0, ..FAST }, false),
            (Machine { cpu: 0.01e-9, ..FAST }, false),
        ] {
            let scheduler = scheduler();
            machine.share(&scheduler, 32 * MIB, 2000);
            let share = machine.share(&scheduler, 32 * MIB, 1000);
            assert_eq!(share > 500, on_device, "{share}");
            assert!(share.min(1000 - share) < 60, "{share}: the other side is tried too often");
        }
    }

    #[test]
    fn small_batches_go_to_the_cpu_if_the_device_starts_slowly() {
        let scheduler = scheduler();
        let machine = Machine { start: 5e-3, ..FAST };
        machine.share(&scheduler, 32 * MIB, 100);
        machine.share(&scheduler, MIB, 100);
        assert!(!scheduler.wants(MIB) || scheduler.lock().settled == 0.0);
        assert!(machine.share(&scheduler, MIB, 100) < 10);
        assert!(machine.share(&scheduler, 32 * MIB, 100) > 80);
    }

    #[test]
    fn changed_speeds_are_noticed() {
        let scheduler = scheduler();
        FAST.share(&scheduler, 32 * MIB, 100);
        let busy = Machine { byte: 10e-9, ..FAST };
        assert!(busy.share(&scheduler, 32 * MIB, 200) < 50);
        FAST.share(&scheduler, 32 * MIB, 1000);
        assert!(FAST.share(&scheduler, 32 * MIB, 100) > 80);
    }

    #[test]
    fn one_thread_tries_the_device_while_the_others_decode() {
        let scheduler = scheduler();
        FAST.share(&scheduler, 32 * MIB, 16);
        let attempt = scheduler.device(32 * MIB).unwrap();
        assert!(!scheduler.wants(32 * MIB) && scheduler.device(32 * MIB).is_none());
        drop(attempt);
        assert!(!scheduler.wants(32 * MIB));
        assert!(FAST.share(&scheduler, 32 * MIB, 100) > 70);
    }

    #[test]
    fn an_attempt_that_panics_is_a_failure_and_the_device_is_tried_again() {
        let scheduler = scheduler();
        FAST.share(&scheduler, 32 * MIB, 16);
        let panics = || {
            let _attempt = scheduler.device(32 * MIB).unwrap();
            panic!("as the test wants it");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(!scheduler.lock().trying);
        assert!(FAST.share(&scheduler, 32 * MIB, 100) > 70);
    }

    #[test]
    fn a_required_device_gets_every_batch_and_a_missing_one_none() {
        let scheduler = Scheduler::new(&Gpu::required(|| Ok(Arc::new(Nothing))), u64::MAX);
        let slow = Machine { byte: 1e-6, ..FAST };
        assert_eq!(slow.share(&scheduler, MIB, 50), 50);
        scheduler.gpu.record_failure(&DeviceError::Lost("gone".to_owned()));
        assert_eq!(slow.share(&scheduler, MIB, 50), 0);
        for gpu in [Gpu::none(), Gpu::new(|| Err(DeviceError::Lost("no driver".to_owned())))] {
            let scheduler = Scheduler::new(&gpu, u64::MAX);
            assert_eq!(FAST.share(&scheduler, 32 * MIB, 100), 0);
            assert!(!scheduler.wants(32 * MIB));
        }
    }

    #[test]
    fn without_a_driver_no_batch_is_ever_formed() {
        let scheduler = Scheduler::new(&Gpu::with_driver(false, || unreachable!("there is no driver")), u64::MAX);
        for _ in 0..100 {
            scheduler.record(Backend::Cpu, 32 * MIB, Duration::from_secs(1));
            assert!(!scheduler.wants(32 * MIB) && scheduler.device(32 * MIB).is_none());
        }
    }
}
