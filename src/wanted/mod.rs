//! Whether the caller of some work still wants it.
//!
//! A caller that may have to wait runs its work in [`Wanted::within`], and gives it up by [`Wanted::give_up`]: every
//! wait in there, for a server or for another thread ([`Condition`]), ends at once with `EINTR`, and so does the next
//! read from a server. Threads that work for the same caller inherit that by [`carried`].
//!
//! Work that several callers wait for is given up once all of them have given up ([`Callers`]).
//!
//! A caller that can only be asked runs it in [`while_wanted`]: its thread asks every 50 ms while it waits.
//!
//! Work may also be limited in its requests to servers ([`Allowance`]): the bytes of an object may make it go on for
//! ever.
//!
//! Only the thread with the question asks it; the others see the answer. So it may be about the thread itself, such as
//! whether a signal has arrived.
#![forbid(unsafe_code)]

mod callers;
mod condition;
mod given_up;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::platform::os_error;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Mutex, MutexGuard, thread_local};

pub use callers::{Callers, Parked, Then};
pub use condition::Condition;
pub use given_up::GivenUp;

/// Interval between two questions.
const LOOK: Duration = sync::interval(Duration::from_millis(50));

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Work that is wanted until it is given up.
#[derive(Debug, Clone, Default)]
pub struct Wanted(Arc<WantedState>);

#[derive(Debug, Default)]
struct WantedState {
    given_up: Arc<GivenUp>,
    /// `None`: without a limit.
    allowance: Option<Allowance>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Limits of the requests of some work to servers.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Requests.
    pub requests: u64,
    /// Bytes of all replies.
    pub bytes: u64,
    /// No request is made later.
    pub until: Instant,
}

/// The work of the current thread.
#[derive(Clone)]
struct Current {
    /// `None`: for nobody yet.
    wanted: Option<Wanted>,
    question: Option<Rc<dyn Fn() -> bool>>,
    asked: Instant,
}

/// Runs `work` as long as `is_wanted`, which is called on this thread every 50 ms while `work` waits for a server or
/// for other threads. Once it has returned `false`, those waits fail with `EINTR`, also on the threads that `work` has
/// started, and with them, soon, `work`. Work that does not wait is not interrupted.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// // Nobody answers there; the caller loses patience before the time-out does.
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let url = format!("http://{}/x.zst", listener.local_addr()?);
/// let until = Instant::now() + Duration::from_millis(100);
/// let opened = fzmfs::while_wanted(
///     move || Instant::now() < until,
///     || fzmfs::Archive::open(&url, &fzmfs::Options::default()),
/// );
/// # if cfg!(feature = "remote") {
/// assert!(fzmfs::is_given_up(&opened.unwrap_err()));
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn while_wanted<T>(is_wanted: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    Wanted::default().entered(Some(Rc::new(is_wanted)), work)
}

/// Whether `error` means that the result is not wanted any more.
pub fn is_given_up(error: &Error) -> bool {
    error.errno() == libc::EINTR
}

impl Wanted {
    /// The state of this thread's work, if its caller may give it up.
    pub fn current() -> Option<Self> {
        CURRENT.with(|current| current.borrow().as_ref()?.wanted.clone())
    }

    /// Work within the limits of `allowance`.
    pub fn limited(allowance: Allowance) -> Self {
        Self(Arc::new(WantedState { allowance: Some(allowance), ..WantedState::default() }))
    }

    /// Gives the work up.
    pub fn give_up(&self) {
        self.0.given_up.set();
    }

    /// Whether it was given up.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.is_set()
    }

    /// Its flag, for what was started for it and does not work for it any more.
    pub fn flag(&self) -> Arc<GivenUp> {
        self.0.given_up.clone()
    }

    fn spend(&self, bytes: u64, now: Instant) -> Result<()> {
        let Some(allowance) = &self.0.allowance else { return Ok(()) };
        let all = |sum: &AtomicU64, more: u64| sum.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        let too_large = |value, limit, what| Err(Error::new(Kind::TooLarge { value, limit }, what));
        let (requests, bytes) = (all(&self.0.requests, 1), all(&self.0.bytes, bytes));
        if requests > allowance.requests || now > allowance.until {
            return too_large(requests, allowance.requests.min(requests - 1), "requests to a server for one answer");
        }
        if bytes > allowance.bytes {
            return too_large(bytes, allowance.bytes, "bytes from a server for one answer");
        }
        Ok(())
    }

    /// Runs `work` until it is given up.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        self.entered(None, work)
    }

    /// As [`Wanted::within`], for the work of this thread until the returned value is dropped.
    pub fn enter(&self) -> Entered {
        Entered(replaced(Some(Current::of(Some(self.clone())))))
    }

    /// Whether it is shared, with a thread that works for it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn entered<T>(&self, question: Option<Rc<dyn Fn() -> bool>>, work: impl FnOnce() -> T) -> T {
        Current { question, ..Current::of(Some(self.clone())) }.during(work)
    }
}

impl Current {
    fn of(wanted: Option<Wanted>) -> Self {
        Self { wanted, question: None, asked: Instant::now() }
    }

    fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let _entered = Entered(replaced(Some(self)));
        work()
    }
}

/// Replaces the work of this thread; returns the previous one.
fn replaced(by: Option<Current>) -> Option<Current> {
    CURRENT.with(|current| current.replace(by))
}

/// Runs `work` before anyone waits for its result.
pub fn ahead<T>(work: impl FnOnce() -> T) -> T {
    Current::of(None).during(work)
}

/// Whether nobody waits for the work of this thread.
pub fn is_ahead() -> bool {
    CURRENT.with(|current| current.borrow().as_ref().is_some_and(|current| current.wanted.is_none()))
}

/// `work`, wanted as long as the present work of this thread, on any thread that will run it.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let wanted = Wanted::current();
    move || during(wanted, work)
}

/// Runs `work` for the callers of `wanted`; without any, it cannot be given up.
pub fn during<T>(wanted: Option<Wanted>, work: impl FnOnce() -> T) -> T {
    let _entered = Entered(replaced(wanted.map(|wanted| Current::of(Some(wanted)))));
    work()
}

/// Fails once the work of this thread is not wanted any more; asks if it is time to.
///
/// # Errors
/// `EINTR`.
pub fn check() -> Result<()> {
    let Some(Current { wanted: Some(wanted), question, asked }) = CURRENT.with(|current| current.borrow().clone())
    else {
        return Ok(());
    };
    if let Some(question) = question.filter(|_| !wanted.is_given_up() && asked.elapsed() >= LOOK) {
        if !question() {
            wanted.give_up();
        }
        CURRENT.with(|current| current.borrow_mut().iter_mut().for_each(|current| current.asked = Instant::now()));
    }
    if wanted.is_given_up() {
        return Err(given_up());
    }
    Ok(())
}

/// Counts a request to a server for `bytes` that the work of this thread makes.
///
/// # Errors
/// [`Kind::TooLarge`] beyond the allowance of that work.
pub fn spend(bytes: u64) -> Result<()> {
    Wanted::current().map_or(Ok(()), |wanted| wanted.spend(bytes, Instant::now()))
}

/// The error of work that is not wanted any more.
pub fn given_up() -> Error {
    Error::io(os_error(libc::EINTR), "request")
}

/// How long this thread may wait until it has to ask; `None` if there is nobody to ask.
pub fn until_question() -> Option<Duration> {
    CURRENT.with(|current| current.borrow().as_ref()?.question.is_some().then_some(LOOK))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the work that a thread did before, on drop.
#[derive(Debug)]
pub struct Entered(Option<Current>);

impl Drop for Entered {
    fn drop(&mut self) {
        drop(replaced(self.0.take()));
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/wanted.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::wait_until;

    #[test]
    fn work_asks_for_no_more_than_it_is_allowed() {
        let until = Instant::now() + Duration::from_secs(1 << 20);
        let work = |until| Wanted::limited(Allowance { requests: 3, bytes: 100, until });
        work(until).within(|| {
            (0..3).for_each(|_| spend(30).unwrap());
            let error = spend(1).unwrap_err();
            assert!(matches!(error.kind(), Kind::TooLarge { value: 4, limit: 3 }), "{error}");
        });
        work(until).within(|| {
            spend(100).unwrap();
            assert!(matches!(spend(1).unwrap_err().kind(), Kind::TooLarge { value: 101, limit: 100 }));
        });
        let late = until + Duration::from_secs(1);
        assert!(work(until).spend(1, until).is_ok() && work(until).spend(1, late).is_err());
        (0..10).for_each(|_| spend(u64::MAX).unwrap());
    }

    #[test]
    fn work_that_was_given_up_elsewhere_ends_and_other_work_does_not() {
        let (mine, other) = (Wanted::default(), Wanted::default());
        mine.within(|| {
            other.give_up();
            check().unwrap();
            other.within(|| assert!(check().is_err()));
            thread::scope(|scope| drop(scope.spawn(|| mine.give_up())));
            wait_until(|| check().is_err());
        });
        check().unwrap();
    }
}
