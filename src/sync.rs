//! Threads and locks of the code whose every order is tried: the standard ones, except in a model (`scripts/models`),
//! where a scheduler decides who runs, and when a time-out passes.
#![forbid(unsafe_code)]

#[cfg(shuttle)]
#[path = "../tests/models/sync.rs"]
pub(crate) mod model;

#[cfg(shuttle)]
pub(crate) use self::model::{Condvar, Mutex, MutexGuard, atomic, thread, thread_local};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread, thread_local,
};

/// Interval at which what waits asks something. No time passes in a model: it asks whenever it may.
pub(crate) const fn interval(time: std::time::Duration) -> std::time::Duration {
    if cfg!(shuttle) { std::time::Duration::ZERO } else { time }
}
