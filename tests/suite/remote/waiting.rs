//! Callers that give up while they wait for a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fzmfs::format::Need;
use fzmfs::{Archive, Options, Result, Verify, is_given_up, wanted, while_wanted};

use super::mounted::frames;
use super::noise;
use crate::support::mounts::wait_until;
use crate::support::server::{Fault, Object, Server};

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(1 << 20);

fn silence() -> [Fault; 1] {
    [Fault::Silence(NEVER)]
}

fn options() -> Options {
    Options::new().threads(2).timeout(NEVER).verify(Verify::Off)
}

/// A server with an object of several frames, and the archive, of which nothing but the beginning is there.
fn opened() -> (Arc<Server>, Archive) {
    let server = Arc::new(Server::start());
    server.put("x.zst", Object::new(frames(&noise(3 << 20))));
    let archive = Archive::open(server.url("x.zst"), &options()).unwrap();
    archive.file("data.raw").unwrap();
    server.take_log();
    (server, archive)
}

/// Fails unless `work` is given up when its caller says so, after it has asked `server`.
#[track_caller]
fn is_left<T>(server: &Arc<Server>, work: impl FnOnce() -> Result<T>) {
    server.take_log();
    let asked = server.clone();
    let error = while_wanted(move || asked.log().is_empty(), work).err().expect("an error");
    assert!(is_given_up(&error), "{error}");
}

#[test]
fn a_caller_that_waits_for_a_server_gives_up_at_once_wherever_it_waits() {
    let (server, archive) = opened();
    server.fail(silence());
    is_left(&server, || Archive::open(server.url("x.zst"), &options()));
    let file = archive.file("data.raw").unwrap();
    is_left(&server, || file.read_exact_at(2 << 20, &mut [0; 10]));
    // All of it on several threads.
    is_left(&server, || file.read_exact_at(0, &mut vec![0; 3 << 20]));
    is_left(&server, || archive.verify(|_| ()));
    server.fail([Fault::Dribble(Duration::from_millis(1), usize::MAX)]);
    is_left(&server, || archive.verify(|_| ()));
    is_left(&server, || Archive::open(server.url("x.zst"), &options()));
    // A read that was given up is not a broken one.
    server.fail([]);
    let mut bytes = vec![0; 3 << 20];
    file.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes == noise(3 << 20));
    archive.verify(|_| ()).unwrap();
}

#[test]
fn a_request_lasts_as_long_as_anybody_waits_for_it() {
    let (server, archive) = opened();
    // So slowly that it would last for an hour.
    server.fail([Fault::Dribble(Duration::from_millis(20), usize::MAX)]);
    let lasts = || server.log().iter().any(|request| request.lasts);
    std::thread::scope(|scope| {
        let reader = || {
            let wanted = Arc::new(AtomicBool::new(true));
            let (asked, archive) = (wanted.clone(), archive.clone());
            let read = move || archive.file("data.raw").unwrap().read_exact_at(2 << 20, &mut [0; 10]);
            (wanted, scope.spawn(|| while_wanted(move || asked.load(Ordering::Relaxed), read)))
        };
        let ((first, one), (second, other)) = (reader(), reader());
        wait_until("it is being fetched", lasts);
        first.store(false, Ordering::Relaxed);
        assert!(is_given_up(&one.join().unwrap().unwrap_err()));
        wait_until("it is being fetched", lasts);
        assert!(!other.is_finished());
        second.store(false, Ordering::Relaxed);
        assert!(is_given_up(&other.join().unwrap().unwrap_err()));
    });
    // The server notices when it sends the next byte.
    wait_until("the request has ended", || !lasts());
}

#[test]
fn a_request_ends_if_its_caller_gives_up_before_it_reads() {
    let (server, archive) = opened();
    // So slowly that it would last for an hour.
    server.fail([Fault::Dribble(Duration::from_millis(20), usize::MAX)]);
    let (server, source) = (&server, archive.container().sources().remove(0));
    let lasts = |server: &Server| server.log().iter().any(|request| request.lasts);
    let asked = server.clone();
    let work = || {
        source.announce(&[1 << 20..3 << 19, 3 << 19..2 << 20], Need::Now);
        wait_until("it is being fetched", || lasts(server));
        wait_until("its caller gives up", || wanted::check().is_err());
    };
    while_wanted(move || !lasts(&asked), work);
    wait_until("the request has ended", || !lasts(server));
}
