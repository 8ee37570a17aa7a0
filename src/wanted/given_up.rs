//! Whether some work was given up: a flag, and whom to wake when it is set.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem::take;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

use super::lock;

/// The flag of some work. Never cleared.
#[derive(Debug, Default)]
pub struct GivenUp {
    is_set: AtomicBool,
    wakers: Mutex<Wakers>,
}

#[derive(Debug, Default)]
struct Wakers {
    next: u64,
    of: BTreeMap<u64, Waker>,
}

/// A registered waker, until it is dropped.
#[derive(Debug)]
pub(super) struct Registered(Arc<GivenUp>, u64);

impl GivenUp {
    /// Sets the flag, and wakes all that wait for it.
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        let wakers = take(&mut lock(&self.wakers).of);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Has `waker` woken when the flag is set; now, if it is.
    pub(super) fn register(self: &Arc<Self>, waker: Waker) -> Registered {
        let mut wakers = lock(&self.wakers);
        let number = wakers.next;
        wakers.next += 1;
        wakers.of.insert(number, waker.clone());
        drop(wakers);
        // It may have been set before the waker was in the list.
        if self.is_set() {
            waker.wake();
        }
        Registered(self.clone(), number)
    }

    /// Returns once the flag is set.
    pub async fn wait(self: Arc<Self>) {
        let mut registered = None;
        poll_fn(|cx| {
            if self.is_set() {
                return Poll::Ready(());
            }
            registered = Some(self.register(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.0.wakers).of.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_waker_is_woken_once_or_at_once_and_not_after_it_has_left() {
        let (given_up, [early, gone, late]) =
            (Arc::new(GivenUp::default()), [(); 3].map(|()| Arc::new(Woken::default())));
        let times = |woken: &Arc<Woken>| woken.0.load(Ordering::Relaxed);
        let _early = given_up.register(early.clone().into());
        drop(given_up.register(gone.clone().into()));
        assert!(!given_up.is_set() && lock(&given_up.wakers).of.len() == 1);
        given_up.set();
        given_up.set();
        let _late = given_up.register(late.clone().into());
        assert_eq!((given_up.is_set(), times(&early), times(&gone), times(&late)), (true, 1, 0, 1));
    }
}
