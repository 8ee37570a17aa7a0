//! Whether the caller of some work still wants it.
//!
//! A caller that may have to wait runs its work in [`while_wanted`] or [`Wanted::within`]. Every wait in there, for a
//! server or for another thread, asks every [`LOOK`], and so does each read from a server; once the work is not wanted
//! it fails with `EINTR`. Threads that work for the same caller inherit that by [`carried`].
//!
//! Work may also be limited in its requests to servers ([`Allowance`]): the bytes of an object may make it go on for
//! ever.
//!
//! Only the thread with the question asks it; the others see the answer. So it may be about the thread itself, such as
//! whether a signal has arrived.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::platform::os_error;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{self, Condvar, Mutex, MutexGuard, thread_local};

/// Interval between two questions.
pub const LOOK: Duration = sync::interval(Duration::from_millis(50));

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Work that is wanted until it is given up.
#[derive(Debug, Clone, Default)]
pub struct Wanted(Arc<WantedState>);

#[derive(Debug, Default)]
struct WantedState {
    is_given_up: Arc<AtomicBool>,
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
        self.0.is_given_up.store(true, Ordering::Release);
    }

    /// Whether it was given up.
    pub fn is_given_up(&self) -> bool {
        self.0.is_given_up.load(Ordering::Acquire)
    }

    /// Whether it was given up, for whoever started something for it, and does not work for it any more.
    pub fn watched(&self) -> impl Fn() -> bool + Clone + Send + Sync + use<> {
        let is_given_up = self.0.is_given_up.clone();
        move || is_given_up.load(Ordering::Acquire)
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

/// Waits until `condvar` is notified (spurious wake-ups included), and fails once the work of this thread is not wanted
/// any more. `mutex` is not locked while it asks.
///
/// # Errors
/// `EINTR`.
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    locked: MutexGuard<'a, T>,
) -> Result<MutexGuard<'a, T>> {
    if Wanted::current().is_none() {
        return Ok(condvar.wait(locked).unwrap_or_else(PoisonError::into_inner));
    }
    let (locked, _) = condvar.wait_timeout(locked, LOOK).unwrap_or_else(PoisonError::into_inner);
    drop(locked);
    // Also when notified: bytes that arrive one by one never let the time pass. The notification may have been the only
    // one: another thread gets it.
    check().inspect_err(|_| condvar.notify_one())?;
    Ok(mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// As [`wait`], while `is_early`.
///
/// # Errors
/// `EINTR`.
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    mut locked: MutexGuard<'a, T>,
    mut is_early: impl FnMut(&mut T) -> bool,
) -> Result<MutexGuard<'a, T>> {
    while is_early(&mut locked) {
        locked = wait(condvar, mutex, locked)?;
    }
    Ok(locked)
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
#[path = "../tests/models/wanted.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::{PATIENCE, wait_until};

    #[test]
    fn notifications_do_not_keep_a_caller_from_giving_up() {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    condvar.notify_all();
                    thread::yield_now();
                }
            });
            let waited =
                while_wanted(|| false, || wait_while(&condvar, &mutex, mutex.lock().unwrap(), |()| true).map(drop));
            done.store(true, Ordering::Relaxed);
            assert!(is_given_up(&waited.unwrap_err()));
        });
    }

    #[test]
    fn who_waits_is_asked_and_ends_with_the_others_that_work_for_it() {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let wait = || wait_while(&condvar, &mutex, mutex.lock().unwrap(), |()| true).map(drop);
        let asked = Rc::new(RefCell::new(Vec::new()));
        let note = asked.clone();
        let question = move || {
            note.borrow_mut().push(thread::current().id());
            note.borrow().len() < 3
        };
        while_wanted(question, || {
            thread::scope(|scope| {
                let other = scope.spawn(carried(wait));
                assert!(is_given_up(&wait().unwrap_err()));
                assert!(is_given_up(&other.join().unwrap().unwrap_err()));
            });
            assert!(check().is_err());
        });
        check().unwrap();
        assert_eq!(*asked.borrow(), [thread::current().id(); 3]);
    }

    #[test]
    fn a_loop_around_a_wait_that_nobody_ends_ends_when_its_caller_gives_up() {
        let (mutex, never) = (Mutex::new(()), Condvar::new());
        let waited = while_wanted(
            || false,
            || {
                let mut locked = mutex.lock().unwrap();
                for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
                    locked = wait(&never, &mutex, locked)?;
                }
                Ok(())
            },
        );
        assert!(is_given_up(&waited.unwrap_err()));
    }

    #[test]
    fn what_comes_is_waited_for_with_and_without_a_question() {
        for wanted in [None, Some(Wanted::default())] {
            let (mutex, condvar) = (Mutex::new(false), Condvar::new());
            let wait = || wait_while(&condvar, &mutex, mutex.lock().unwrap(), |there| !*there).map(|there| *there);
            let got = thread::scope(|scope| {
                let waiting = scope.spawn(|| wanted.as_ref().map_or_else(wait, |wanted| wanted.within(wait)));
                *mutex.lock().unwrap() = true;
                condvar.notify_all();
                waiting.join().unwrap()
            });
            assert!(got.unwrap());
        }
    }

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
