//! Threads and locks of code that models run in every order: the standard ones, except in a model (`scripts/models`),
//! where a scheduler decides which thread runs, and when a time-out passes.
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

/// Interval at which a waiting thread polls. No time passes in a model: it polls whenever it may.
pub(crate) const fn interval(time: std::time::Duration) -> std::time::Duration {
    if cfg!(shuttle) { std::time::Duration::ZERO } else { time }
}
