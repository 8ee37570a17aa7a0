//! The CPU or the device: whichever is predicted to decode a batch sooner, from what they took so far.
//!
//! A decoder asks [`Pace::wants`] in `Blob::batch`, to say 1 where the CPU is to decode: then its pieces go to
//! all cores. It asks [`Pace::device`] in `Blob::decode_many`, and reports what each side took, single pieces too.
//!
//! The CPU takes a time for each byte. The device takes that, and a time for each batch besides, so small ones are
//! not for it. To open it costs as much as decoding for a while: it is tried once the CPU has worked about as long, so
//! that trying cannot more than double the time. The first batch on the device does not count: its kernels are
//! loaded meanwhile.
//!
//! What lost is tried again now and then, as seldom as keeps that below a twentieth of the time. A device that the
//! user insists on gets every batch. Single pieces are the CPU's, always.
//!
//! Invariant: there is no clock here; who decodes says how long it took.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Device, Gpu};

/// How long the CPU decodes before a device is opened for it: about what that takes.
const PATIENCE: f64 = 0.3;
/// The weight of what was known before, when something new is learnt.
const MEMORY: f64 = 0.8;
/// One time in so many the other side is tried, where it takes as long.
const SELDOM: f64 = 20.0;

/// What decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// A core of the CPU.
    Cpu,
    /// The device.
    Device,
}

/// What the batches of one pipeline took.
#[derive(Debug)]
pub struct Pace {
    gpu: Arc<Gpu>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cpu: Line,
    device: Line,
    /// Seconds that the CPU has decoded, and that it is to have decoded before a device is tried that has failed.
    spent: f64,
    until: f64,
    /// Batches that the device has decoded, and whether it is tried just now.
    batches: u64,
    trying: bool,
    /// Decisions for one side since the other was last tried, in times that the trial would take.
    settled: f64,
}

impl Pace {
    /// Of a pipeline that `gpu` may decode.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: gpu.clone(), state: Mutex::default() }
    }

    /// Whether a batch of `bytes` bytes would go to the device now. Cheap; opens nothing.
    pub fn wants(&self, bytes: u64) -> bool {
        self.gpu.is_possible() && (self.gpu.is_required() || self.lock().choose(bytes) == Site::Device)
    }

    /// The device, if it is to decode a batch of `bytes` bytes. Opens it when it is first needed.
    ///
    /// Whoever asks then says what that took, by [`Pace::took`], or that it failed, by [`Pace::failed`].
    pub fn device(&self, bytes: u64) -> Option<Arc<dyn Device>> {
        if !self.gpu.is_possible() {
            return None;
        }
        let mut state = self.lock();
        if state.decide(bytes) == Site::Cpu && !self.gpu.is_required() {
            return None;
        }
        state.trying |= state.batches < 2;
        drop(state);
        let device = self.gpu.device().inspect_err(|_| self.failed());
        device.ok()
    }

    /// `site` has decoded `bytes` bytes in one go, within `time` of the thread that waited for it.
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

    /// The device has not decoded what it was asked for.
    pub fn failed(&self) {
        let mut state = self.lock();
        state.trying = false;
        // What fails once may fail each time: there is to be time for twice as much work until the next time.
        state.until = 2.0 * state.spent;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Which side decodes `bytes` bytes.
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

    /// As [`State::choose`], and remembers it.
    fn decide(&mut self, bytes: u64) -> Site {
        let site = self.choose(bytes);
        let (Some(cpu), Some(device)) = (self.cpu.proportional(bytes), self.device.predict(bytes)) else { return site };
        let best = if device < cpu { Site::Device } else { Site::Cpu };
        self.settled = if site == best { self.settled + 1.0 } else { 0.0 };
        site
    }
}

/// Seconds over bytes: a straight line through what was seen, of which the latest counts most.
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

    /// Seconds for `bytes`, where each takes the same.
    fn proportional(&self, bytes: u64) -> Option<f64> {
        (self.x > 0.0).then(|| self.y / self.x * bytes as f64)
    }

    /// Seconds for `bytes`, where each takes the same and every batch something besides.
    fn predict(&self, bytes: u64) -> Option<f64> {
        let proportional = self.proportional(bytes)?;
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let spread = self.xx / self.weight - x * x;
        // Of batches of one size nobody can tell what a smaller one takes: as much, to be careful.
        if spread < 0.01 * x * x {
            return Some(proportional.max(y));
        }
        let slope = ((self.xy / self.weight - x * y) / spread).clamp(0.0, y / x);
        Some((y + slope * (bytes as f64 - x)).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Trouble;
    use crate::gpu::tests::Nothing;

    const MIB: u64 = 1 << 20;

    /// A machine: seconds that the CPU takes for a byte, and the device for a batch and for a byte.
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

        /// Decodes a batch as `pace` says; where.
        fn decode(self, pace: &Pace, bytes: u64) -> Site {
            let site = if pace.device(bytes).is_some() { Site::Device } else { Site::Cpu };
            // To open the device and to load the kernels takes a while.
            let first = site == Site::Device && pace.lock().batches == 0;
            pace.took(site, bytes, self.time(site, bytes) + Duration::from_millis(if first { 500 } else { 0 }));
            site
        }

        /// How many of so many batches go to the device.
        fn share(self, pace: &Pace, bytes: u64, batches: usize) -> usize {
            (0..batches).filter(|_| self.decode(pace, bytes) == Site::Device).count()
        }
    }

    fn pace() -> Pace {
        Pace::new(&Gpu::new(|| Ok(Arc::new(Nothing))))
    }

    /// 1 GB/s on the CPU; 20 GB/s on the device, and 200 microseconds.
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
        assert!(pace.device(32 * MIB).is_some());
        assert!(!pace.wants(32 * MIB) && pace.device(32 * MIB).is_none());
        pace.failed();
        assert!(!pace.wants(32 * MIB));
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
