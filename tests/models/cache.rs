//! Models of the cache: who asks for a piece gets it, whatever happens meanwhile.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use shuttle::sync::mpsc;

use super::*;
use crate::error::{Error, Kind};
use crate::format::{Blob, InOrder, Layout};
use crate::sync::model::{Time, check, later};
use crate::sync::thread;
use crate::wanted::Wanted;

/// A stream of six pieces of 10 bytes.
struct Stream {
    /// How often each was decoded.
    decodes: [AtomicU32; 6],
    /// What its bytes are now.
    version: AtomicU64,
    is_run: bool,
    panics: bool,
}

fn stream() -> Stream {
    Stream { decodes: Default::default(), version: AtomicU64::new(1), is_run: false, panics: false }
}

impl Stream {
    fn blob(self) -> (BlobRef, Arc<Self>) {
        let this = Arc::new(self);
        (BlobRef::shared(this.clone()), this)
    }
}

impl Blob for Stream {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: 60, piece: 10 })
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        thread::yield_now();
        wanted::check()?;
        let version = self.version.load(Ordering::Relaxed);
        thread::yield_now();
        wanted::check()?;
        if self.panics {
            resume_unwind(Box::new("on purpose"));
        }
        self.decodes[piece as usize].fetch_add(1, Ordering::Relaxed);
        dst.fill(version as u8);
        Ok(())
    }
}

impl InOrder for Stream {
    fn is_run(&self, _: u64) -> bool {
        self.is_run
    }
}

/// Asks for a piece, and says what came.
fn fetch(cache: &Cache, blob: &BlobRef, piece: u64) -> mpsc::Receiver<Result<Piece>> {
    let (tx, rx) = mpsc::channel();
    cache.fetch_async(blob, piece, Box::new(move |got| tx.send(got).unwrap()));
    rx
}

/// Gets a piece on a thread.
fn get(cache: &Arc<Cache>, blob: &BlobRef, piece: u64) -> thread::JoinHandle<Result<Piece>> {
    let (cache, blob) = (cache.clone(), blob.clone());
    thread::spawn(move || cache.get(&blob, piece))
}

#[test]
fn a_piece_is_decoded_once_for_all_who_ask() {
    check(Time::Passes, || {
        let ((blob, stream), cache) = (stream().blob(), Cache::new(1 << 20, 1));
        let (one, other) = (get(&cache, &blob, 2), get(&cache, &blob, 2));
        let third = fetch(&cache, &blob, 2).recv().unwrap();
        for got in [one.join().unwrap(), other.join().unwrap(), third] {
            assert_eq!(got.unwrap()[..], [1; 10]);
        }
        assert_eq!(stream.decodes[2].load(Ordering::Relaxed), 1);
    });
}

#[test]
fn who_gives_up_takes_the_piece_from_nobody_else() {
    check(Time::Passes, || {
        let ((blob, _), cache, mine) = (stream().blob(), Cache::new(1 << 20, 1), Wanted::default());
        let (same, its, wanted) = (cache.clone(), blob.clone(), mine.clone());
        let gives_up = thread::spawn(move || wanted.within(|| same.get(&its, 2)));
        let waits = get(&cache, &blob, 2);
        let fetched = fetch(&cache, &blob, 2);
        later();
        mine.give_up();
        assert!(waits.join().unwrap().is_ok() && fetched.recv().unwrap().is_ok());
        assert!(gives_up.join().unwrap().map_or_else(|error| is_given_up(&error), |got| got[..] == [1; 10]));
    });
}

/// A stream that is decoded until nobody wants it.
struct Endless(mpsc::Sender<()>);

impl Blob for Endless {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: 10, piece: 10 })
    }

    fn decode(&self, _: u64, _: &mut [u8]) -> Result<()> {
        let (mutex, never) = (Mutex::new(()), wanted::Condition::new());
        let ended = never.wait_while(&mutex, mutex.lock().unwrap(), |()| true).map(drop);
        self.0.send(()).unwrap();
        ended
    }
}

#[test]
fn a_decode_ends_when_all_who_wait_have_given_up() {
    check(Time::Stands, || {
        let (tx, ended) = mpsc::channel();
        let (blob, cache) = (BlobRef::shared(Arc::new(Endless(tx))), Cache::new(1 << 20, 1));
        let callers = [(); 2].map(|()| Wanted::default());
        let got = callers.each_ref().map(|caller| caller.within(|| fetch(&cache, &blob, 0)));
        later();
        for (caller, got) in callers.into_iter().zip(got) {
            caller.give_up();
            assert!(is_given_up(&got.recv().unwrap().unwrap_err()));
        }
        // That of a decode that had begun; the queued one of a piece that nobody waits for ends too.
        ended.recv().unwrap();
    });
}

#[test]
fn bytes_of_a_changed_source_are_neither_served_nor_kept() {
    check(Time::Passes, || {
        let ((blob, stream), cache, changed) =
            (stream().blob(), Cache::new(1 << 20, 1), Arc::new(AtomicBool::new(false)));
        let seen = changed.clone();
        let unchanged = move || if seen.load(Ordering::Relaxed) { Err(Error::new(Kind::Changed, "x")) } else { Ok(()) };
        cache.source_check(unchanged);
        let (one, other) = (get(&cache, &blob, 2), fetch(&cache, &blob, 2));
        later();
        changed.store(true, Ordering::Relaxed);
        stream.version.store(2, Ordering::Relaxed);
        for got in [one.join().unwrap(), other.recv().unwrap()].into_iter().flatten() {
            assert_eq!(got[..], [1; 10]);
        }
        assert!(cache.peek(&blob, 2).is_none_or(|kept| kept[..] == [1; 10]));
    });
}

#[test]
fn what_is_being_decoded_when_the_cache_is_cleared_is_served_and_not_kept() {
    check(Time::Passes, || {
        let ((blob, stream), cache) = (stream().blob(), Cache::new(1 << 20, 1));
        let one = get(&cache, &blob, 2);
        later();
        stream.version.store(2, Ordering::Relaxed);
        cache.clear();
        assert!(one.join().unwrap().is_ok());
        // One that begins later is of what is there now.
        let is_old = |kept: Piece| kept[..] == [1; 10];
        assert!(!cache.peek(&blob, 2).is_some_and(is_old));
    });
}

#[test]
fn a_panic_of_a_decoder_is_an_error_of_all_who_wait() {
    check(Time::Passes, || {
        let ((blob, _), cache) = (Stream { panics: true, ..stream() }.blob(), Cache::new(1 << 20, 1));
        let (one, other) = (get(&cache, &blob, 2), fetch(&cache, &blob, 2));
        assert!(one.join().unwrap().is_err() && other.recv().unwrap().is_err());
        assert!(cache.lock().in_flight_pieces.is_empty());
    });
}

#[test]
fn a_requested_piece_of_a_run_comes_whatever_becomes_of_the_run() {
    check(Time::Stands, || {
        let ((blob, _), cache) = (Stream { is_run: true, ..stream() }.blob(), Cache::new(1 << 20, 1));
        cache.prefetch(&blob, 0..4);
        later();
        let fetched = fetch(&cache, &blob, 3);
        // The run gives way to it.
        cache.submit(Box::new(|| ()));
        later();
        cache.clear();
        assert!(fetched.recv().unwrap().is_ok());
    });
}

#[test]
fn an_accepted_piece_is_decoded_once_ahead_or_for_who_asks() {
    check(Time::Passes, || {
        let ((blob, stream), cache) = (stream().blob(), Cache::new(1 << 20, 2));
        assert!(cache.prefetch(&blob, 0..3));
        let one = get(&cache, &blob, 1);
        let other = fetch(&cache, &blob, 2);
        assert!(one.join().unwrap().is_ok() && other.recv().unwrap().is_ok());
        // The pool ends when its hints have run, or are dropped.
        drop(cache);
        for decodes in &stream.decodes[1..3] {
            assert_eq!(decodes.load(Ordering::Relaxed), 1);
        }
    });
}
