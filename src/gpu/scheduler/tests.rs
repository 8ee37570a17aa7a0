//! Tests of `scheduler`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::gpu::DeviceError;
use crate::gpu::choice::tests::Nothing;

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
