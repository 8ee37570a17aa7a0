//! Schedules each batch on the CPU or the device, whichever is predicted to be faster from measured times.
//!
//! A decoder calls [`Pace::wants`] in `Blob::batch`; if it returns false the batch size is 1, and all cores share the
//! pieces. It calls [`Pace::device`] in `Blob::decode_many`, and reports how long each side took, for single pieces
//! too. An [`Attempt`] on the device that ends without a report has failed.
//!
//! CPU time is proportional to bytes. Device time is too, plus a fixed cost per batch, so small batches go to the CPU.
//! Opening the device costs as much as some CPU decoding: it is opened once the CPU has decoded for about as long, so a
//! wasted attempt at most doubles the time. The first batch on the device is not measured, because it loads the
//! kernels.
//!
//! The slower side is retried now and then, for less than a twentieth of the time. A required device gets every batch.
//! Single pieces always go to the CPU.
//!
//! Invariant: this module reads no clock; decoders report their times.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Device, Gpu};

/// CPU seconds before a device is opened: about as long as opening takes.
const PATIENCE: f64 = 0.3;
/// Weight of older measurements at each new one.
const MEMORY: f64 = 0.8;
/// The slower side gets about one batch in this many, if it takes as long; fewer if it takes longer.
const SELDOM: f64 = 20.0;

/// Where a batch is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// A core of the CPU.
    Cpu,
    /// The device.
    Device,
}

/// Measured times for the batches of one pipeline.
#[derive(Debug)]
pub struct Pace {
    gpu: Arc<Gpu>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cpu: Line,
    device: Line,
    /// CPU seconds spent, and how many must be spent before a failed device is retried.
    spent: f64,
    until: f64,
    /// Batches decoded by the device, and whether a trial is in progress.
    batches: u64,
    trying: bool,
    /// Consecutive decisions for the faster side, since the other was last tried.
    settled: f64,
}

impl Pace {
    /// For a pipeline that `gpu` may decode.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: gpu.clone(), state: Mutex::default() }
    }

    /// Whether a batch of `bytes` bytes would go to the device now. Cheap; opens nothing.
    pub fn wants(&self, bytes: u64) -> bool {
        self.gpu.is_possible() && (self.gpu.is_required() || self.lock().choose(bytes) == Site::Device)
    }

    /// The device, if it should decode a batch of `bytes` bytes, and the attempt, which the caller ends. Opens the device
    /// on first use.
    pub fn device(&self, bytes: u64) -> Option<(Arc<dyn Device>, Attempt<'_>)> {
        if !self.gpu.is_possible() {
            return None;
        }
        let mut state = self.lock();
        if state.decide(bytes) == Site::Cpu && !self.gpu.is_required() {
            return None;
        }
        state.trying |= state.batches < 2;
        drop(state);
        // From here on a failure is recorded, also if opening the device panics.
        let attempt = Attempt { pace: self, bytes, has_succeeded: false };
        Some((self.gpu.device().ok()?, attempt))
    }

    /// Records that `site` decoded `bytes` bytes in one call that took `time`.
    pub fn took(&self, site: Site, bytes: u64, time: Duration) {
        self.gpu.count(site, bytes);
        let seconds = time.as_secs_f64();
        let mut state = self.lock();
        match site {
            Site::Cpu => {
                state.spent += seconds;
                state.cpu.learn(bytes, seconds);
            }
            Site::Device => {
                state.trying = false;
                state.batches += 1;
                if state.batches > 1 {
                    state.device.learn(bytes, seconds);
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

/// A batch that the device decodes. Dropping it records a failure, unless [`Attempt::took`] was called: a decoder that
/// returns early or panics leaves no attempt open, which would keep the other batches from the device.
#[derive(Debug)]
pub struct Attempt<'a> {
    pace: &'a Pace,
    bytes: u64,
    has_succeeded: bool,
}

impl Attempt<'_> {
    /// Records that the device has decoded the batch, in `time`.
    pub fn took(mut self, time: Duration) {
        self.has_succeeded = true;
        self.pace.took(Site::Device, self.bytes, time);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_succeeded {
            self.pace.failed();
        }
    }
}

impl State {
    /// Chooses the side for `bytes` bytes.
    fn choose(&self, bytes: u64) -> Site {
        let Some(cpu) = self.cpu.proportional(bytes) else { return Site::Cpu };
        let Some(device) = self.device.predict(bytes) else {
            let worth = self.spent >= self.until.max(PATIENCE) && !self.trying;
            return if worth { Site::Device } else { Site::Cpu };
        };
        let (best, cost, other) = if device < cpu { (Site::Device, device, cpu) } else { (Site::Cpu, cpu, device) };
        let due = self.settled * cost > SELDOM * other;
        match best {
            _ if !due => best,
            Site::Device => Site::Cpu,
            Site::Cpu => Site::Device,
        }
    }

    /// As [`State::choose`], and records the decision.
    fn decide(&mut self, bytes: u64) -> Site {
        let site = self.choose(bytes);
        let (Some(cpu), Some(device)) = (self.cpu.proportional(bytes), self.device.predict(bytes)) else { return site };
        let best = if device < cpu { Site::Device } else { Site::Cpu };
        self.settled = if site == best { self.settled + 1.0 } else { 0.0 };
        site
    }
}

/// Seconds as a linear function of bytes: weighted least squares, recent measurements weigh most.
#[derive(Debug, Default)]
struct Line {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
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
    use crate::gpu::Trouble;
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
        fn time(self, site: Site, bytes: u64) -> Duration {
            let (start, byte) = if site == Site::Cpu { (0.0, self.cpu) } else { (self.start, self.byte) };
            Duration::from_secs_f64(start + byte * bytes as f64)
        }

        /// Decodes a batch where `pace` says, and returns where.
        fn decode(self, pace: &Pace, bytes: u64) -> Site {
            let Some((_, attempt)) = pace.device(bytes) else {
                pace.took(Site::Cpu, bytes, self.time(Site::Cpu, bytes));
                return Site::Cpu;
            };
            // Opening the device and loading the kernels takes a while.
            let first = pace.lock().batches == 0;
            attempt.took(self.time(Site::Device, bytes) + Duration::from_millis(if first { 500 } else { 0 }));
            Site::Device
        }

        /// How many of `batches` batches go to the device.
        fn share(self, pace: &Pace, bytes: u64, batches: usize) -> usize {
            (0..batches).filter(|_| self.decode(pace, bytes) == Site::Device).count()
        }
    }

    fn pace() -> Pace {
        Pace::new(&Gpu::new(|| Ok(Arc::new(Nothing))))
    }

    /// 1 GB/s on the CPU; 20 GB/s plus 200 microseconds per batch on the device.
    const FAST: Machine = Machine { cpu: 1e-9, start: 2e-4, byte: 0.05e-9 };

    #[test]
    fn the_device_is_not_opened_for_a_little_work() {
        let pace = pace();
        assert_eq!(FAST.share(&pace, 32 * MIB, 8), 0, "0.27 seconds");
        assert!(!pace.gpu.is_open());
        assert!(FAST.share(&pace, 32 * MIB, 100) > 90);
        assert!(pace.gpu.is_open());
    }

    #[test]
    fn a_faster_device_gets_the_batches_and_a_slower_one_does_not() {
        for (machine, on_device) in [
            (FAST, true),
            (Machine { byte: 2e-9, ..FAST }, false),
            (Machine { start: 1.0, ..FAST }, false),
            (Machine { cpu: 0.01e-9, ..FAST }, false),
        ] {
            let pace = pace();
            machine.share(&pace, 32 * MIB, 2000);
            let share = machine.share(&pace, 32 * MIB, 1000);
            assert_eq!(share > 500, on_device, "{share}");
            assert!(share.min(1000 - share) < 60, "{share}: the other side is tried too often");
        }
    }

    #[test]
    fn small_batches_are_for_the_cpu_where_the_device_takes_long_to_start() {
        let pace = pace();
        let machine = Machine { start: 5e-3, ..FAST };
        machine.share(&pace, 32 * MIB, 100);
        machine.share(&pace, MIB, 100);
        assert!(!pace.wants(MIB) || pace.lock().settled == 0.0);
        assert!(machine.share(&pace, MIB, 100) < 10);
        assert!(machine.share(&pace, 32 * MIB, 100) > 80);
    }

    #[test]
    fn what_changes_is_noticed() {
        let pace = pace();
        FAST.share(&pace, 32 * MIB, 100);
        let busy = Machine { byte: 10e-9, ..FAST };
        assert!(busy.share(&pace, 32 * MIB, 200) < 50);
        FAST.share(&pace, 32 * MIB, 1000);
        assert!(FAST.share(&pace, 32 * MIB, 100) > 80);
    }

    #[test]
    fn one_thread_tries_the_device_while_the_others_go_on() {
        let pace = pace();
        FAST.share(&pace, 32 * MIB, 10);
        let attempt = pace.device(32 * MIB).unwrap();
        assert!(!pace.wants(32 * MIB) && pace.device(32 * MIB).is_none());
        drop(attempt);
        assert!(!pace.wants(32 * MIB));
        assert!(FAST.share(&pace, 32 * MIB, 100) > 70);
    }

    #[test]
    fn an_attempt_that_panics_is_a_failure_and_the_device_is_tried_again() {
        let pace = pace();
        FAST.share(&pace, 32 * MIB, 10);
        let panics = || {
            let _attempt = pace.device(32 * MIB).unwrap();
            panic!("as the test wants it");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(!pace.lock().trying);
        assert!(FAST.share(&pace, 32 * MIB, 100) > 70);
    }

    #[test]
    fn a_device_that_was_asked_for_gets_every_batch_and_none_gets_none() {
        let pace = Pace::new(&Gpu::required(|| Ok(Arc::new(Nothing))));
        let slow = Machine { byte: 1e-6, ..FAST };
        assert_eq!(slow.share(&pace, MIB, 50), 50);
        pace.gpu.note(&Trouble::Lost("gone".to_owned()));
        assert_eq!(slow.share(&pace, MIB, 50), 0);
        for gpu in [Gpu::none(), Gpu::new(|| Err(Trouble::Lost("no driver".to_owned())))] {
            let pace = Pace::new(&gpu);
            assert_eq!(FAST.share(&pace, 32 * MIB, 100), 0);
            assert!(!pace.wants(32 * MIB));
        }
    }
}
