//! What `src/sync.rs` is in a model: the threads and locks of shuttle, and time-outs that pass whenever its scheduler
//! has it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::{thread, thread_local};

/// Runs of each scheduler.
const RUNS: usize = 1000;
/// Changes of priority in a run.
const DEPTH: usize = 3;

/// Whether a wait with a time-out may end by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    Passes,
    /// Only a notification ends a wait: what is never notified is a deadlock.
    Stands,
}

std::thread_local! {
    /// That of the model that runs on this thread.
    static TIME: std::cell::Cell<Time> = const { std::cell::Cell::new(Time::Passes) };
}

/// Runs `model` in many orders, always the same ones, until one of them fails.
pub(crate) fn check(time: Time, model: impl Fn() + Send + Sync + 'static) {
    TIME.set(time);
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    let model = std::sync::Arc::new(model);
    let same = model.clone();
    Runner::new(RandomScheduler::new_from_seed(32, RUNS), config.clone()).run(move || same());
    Runner::new(PctScheduler::new_from_seed(32, DEPTH, RUNS), config).run(move || model());
}

/// Lets others run for a while.
pub(crate) fn later() {
    for _ in 0..thread_rng().gen_range(0..20) {
        thread::yield_now();
    }
}

/// As [`std::sync::Mutex`].
#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// As [`std::sync::MutexGuard`].
pub(crate) struct MutexGuard<'a, T> {
    locked: shuttle::sync::MutexGuard<'a, T>,
    of: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.guarded(self.0.lock())
    }

    fn guarded<'a>(&'a self, locked: LockResult<shuttle::sync::MutexGuard<'a, T>>) -> LockResult<MutexGuard<'a, T>> {
        let guard = |locked| MutexGuard { locked, of: self };
        locked.map(guard).map_err(|poisoned| PoisonError::new(guard(poisoned.into_inner())))
    }

    pub(crate) fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.locked
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.locked
    }
}

/// As [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    /// Threads that wait without a time-out.
    firm: shuttle::sync::Condvar,
    /// The number of the next wait with a time-out, and those that no notification has ended.
    timed: std::sync::Mutex<(u64, Vec<u64>)>,
}

/// As [`std::sync::WaitTimeoutResult`].
#[derive(Debug)]
pub(crate) struct TimedOut(bool);

impl TimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self { firm: shuttle::sync::Condvar::new(), timed: std::sync::Mutex::new((0, Vec::new())) }
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { locked, of } = guard;
        of.guarded(self.firm.wait(locked))
    }

    pub(crate) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut is_early: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while is_early(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        if TIME.get() == Time::Stands {
            return Ok((self.wait(guard).unwrap_or_else(PoisonError::into_inner), TimedOut(false)));
        }
        let of = guard.of;
        let number = {
            let (next, waiting) = &mut *self.timed();
            waiting.push(*next);
            *next += 1;
            *next - 1
        };
        drop(guard);
        // The time is over when the scheduler comes back to this; a notification may still come before the lock is.
        thread::yield_now();
        let is_over = {
            let (_, waiting) = &mut *self.timed();
            let own = waiting.iter().position(|other| *other == number);
            own.map(|own| waiting.remove(own)).is_some()
        };
        Ok((of.lock().unwrap_or_else(PoisonError::into_inner), TimedOut(is_over)))
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        most: Duration,
        mut is_early: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        let mut over = TimedOut(false);
        while is_early(&mut guard) && !over.timed_out() {
            (guard, over) = self.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        }
        Ok((guard, over))
    }

    pub(crate) fn notify_one(&self) {
        // Others may run before.
        thread::sleep(Duration::ZERO);
        if let (_, waiting) = &mut *self.timed()
            && !waiting.is_empty()
        {
            waiting.remove(thread_rng().gen_range(0..waiting.len()));
            return;
        }
        self.firm.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.firm.notify_all();
        self.timed().1.clear();
    }

    fn timed(&self) -> std::sync::MutexGuard<'_, (u64, Vec<u64>)> {
        self.timed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
