//! A decode in progress: who claims it, whether anybody wants it, and what its waiters get when it is given up.

use std::thread;

use super::*;
use crate::cache::in_flight::InFlight;
use crate::wanted::{Then, Wanted, given_up};

/// A continuation that nobody listens to.
fn nothing() -> Then<Piece> {
    Box::new(|_| ())
}

#[test]
fn a_decode_is_wanted_until_all_that_wait_have_given_up() {
    let flight = InFlight::new(true);
    assert!(!flight.is_wanted() && !flight.was_awaited());
    let mine = Wanted::default();
    assert!(mine.within(|| flight.after(nothing())).is_none());
    assert!(flight.is_wanted() && flight.was_awaited());
    mine.give_up();
    assert!(!flight.is_wanted() && flight.was_awaited());
    assert!(flight.after(nothing()).is_none());
    assert!(flight.is_wanted());
}

#[test]
fn a_decode_that_is_given_up_goes_to_who_is_blocked() {
    let flight = InFlight::new(true);
    let piece = Arc::new(vec![7]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| flight.wait());
        wait_until(|| flight.is_wanted());
        assert!(!flight.claim());
        assert!(flight.is_passed_on(&given_up()), "one waits");
        assert!(flight.claim() && !flight.claim());
        assert!(flight.complete(&Ok(piece.clone())).is_empty());
        assert_eq!(waiting.join().unwrap().unwrap(), piece);
    });
    // Nobody is blocked any more.
    assert!(!flight.is_wanted() && flight.was_awaited());
}

#[test]
fn a_decode_that_nobody_wants_ends_and_its_last_requests_are_made_again() {
    let flight = InFlight::new(true);
    assert!(!flight.is_passed_on(&given_up()));
    assert!(is_given_up(&flight.wait().unwrap_err()));
    assert!(flight.after(nothing()).is_some(), "to be requested again");
    // Any other error is the result.
    let (flight, (tx, rx)) = (InFlight::new(true), mpsc::channel());
    assert!(flight.complete(&Err(Error::corrupt("no", "piece"))).is_empty());
    assert!(flight.after(Box::new(move |got| tx.send(got).unwrap())).is_none());
    assert!(!is_given_up(&rx.try_recv().unwrap().unwrap_err()));
}

/// A piece that a caller gives up while it decodes it, and that decodes the next time.
struct GivenUp {
    decodes: AtomicU64,
    is_awaited: AtomicBool,
}

impl Blob for GivenUp {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: PIECE, piece: PIECE })
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        if self.decodes.fetch_add(1, Ordering::Relaxed) == 0 {
            wait_until(|| self.is_awaited.load(Ordering::Relaxed));
            return Err(given_up());
        }
        dst.fill(9);
        Ok(())
    }
}

#[test]
fn a_caller_decodes_itself_what_another_one_has_given_up() {
    let stream = Arc::new(GivenUp { decodes: AtomicU64::new(0), is_awaited: AtomicBool::new(false) });
    let (blob, cache) = (BlobRef::shared(stream.clone()), Cache::new(1 << 20, 1));
    let flight = || cache.lock().in_flight_pieces.get(&(blob.id(), 0)).cloned();
    thread::scope(|scope| {
        let first = scope.spawn(|| Wanted::default().within(|| cache.get(&blob, 0)));
        wait_until(|| stream.decodes.load(Ordering::Relaxed) == 1);
        let second = scope.spawn(|| cache.get(&blob, 0));
        wait_until(|| flight().is_some_and(|flight| flight.is_wanted()));
        stream.is_awaited.store(true, Ordering::Relaxed);
        assert_eq!(second.join().unwrap().unwrap()[..], [9; PIECE as usize]);
        first.join().unwrap().ok();
    });
    assert_eq!(stream.decodes.load(Ordering::Relaxed), 2);
}

/// Pieces that show the work within which they are decoded.
struct Shows(mpsc::Sender<Wanted>);

impl Blob for Shows {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: PIECE, piece: PIECE })
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        self.0.send(Wanted::current().unwrap()).unwrap();
        dst.fill(1);
        Ok(())
    }
}

#[test]
fn what_a_decode_has_begun_for_its_callers_goes_on_after_it() {
    let (shown, work) = mpsc::channel();
    let (blob, cache) = (BlobRef::shared(Arc::new(Shows(shown))), Cache::new(1 << 20, 1));
    let (tx, rx) = mpsc::channel();
    let caller = Wanted::default();
    caller.within(|| cache.fetch_async(&blob, 0, Box::new(move |got| tx.send(got).unwrap())));
    assert_eq!(rx.recv_timeout(PATIENCE).unwrap().unwrap()[..], [1; PIECE as usize]);
    wait_until(|| cache.lock().in_flight_pieces.is_empty());
    assert!(!work.recv().unwrap().is_given_up());
}

/// Clears the cache while it decodes a piece.
struct Clears(OnceLock<Arc<Cache>>);

impl Blob for Clears {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: PIECE, piece: PIECE })
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        if let Some(cache) = self.0.get() {
            cache.clear();
        }
        dst.fill(3);
        Ok(())
    }
}

#[test]
fn what_was_decoded_before_the_cache_was_cleared_is_served_but_not_kept() {
    let (stream, cache) = (Arc::new(Clears(OnceLock::new())), Cache::new(1 << 20, 1));
    assert!(stream.0.set(cache.clone()).is_ok());
    let blob = BlobRef::shared(stream);
    assert_eq!(cache.get(&blob, 0).unwrap()[..], [3; PIECE as usize]);
    assert!(!cache.holds(&blob, 0));
    assert_eq!((cache.stats().held, cache.stats().decodes), (0, 1));
}
