//! The fzmfs mounts of this user and their counters, for `fzmfs list`.
//!
//! The mounts come from the kernel's table, which needs no daemon. The daemons are asked all at once, on a thread each,
//! and not waited for longer than [`PATIENCE`]: one that is stopped delays the list, but does not prevent it.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::mountinfo::{self, Mount, Table};
use super::pinned::Pinned;
use super::{daemon_id, stats, sys};
use crate::error::os_message;
use crate::failure::Failure;

/// How long the daemons may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The mounts found.
#[derive(Debug)]
pub struct Listing {
    /// Those of this user, in the order in which they were made.
    pub mounts: Vec<Listed>,
    /// The number of mounts of other users, whose daemons do not answer this user.
    pub others: usize,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The source, as mount(8) shows it.
    pub source: OsString,
    /// The mount point.
    pub point: PathBuf,
    /// What its daemon does.
    pub state: State,
    /// The process id of the daemon, if it is valid in this PID namespace.
    pub pid: Option<u32>,
    /// The counters: an object.
    pub stats: Option<Value>,
}

/// The state of a mount's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It answers.
    Serving,
    /// It has ended, and the mount is left.
    Dead,
    /// It does not answer in time.
    Silent,
    /// Something else is mounted over it.
    Covered,
    /// It cannot be asked, for the given reason.
    Refused(String),
}

/// Lists the mounts of this user on `points`; all of them if there are none.
///
/// # Errors
/// A message for the user: the table cannot be read, or one of `points` is not such a mount.
pub fn list(points: &[PathBuf]) -> Result<Listing, Failure> {
    let table = Table::open().map_err(|e| Failure::system(Path::new(mountinfo::PATH), &e))?;
    let read = || table.read().map_err(|e| Failure::system(Path::new(mountinfo::PATH), &e));
    let (user, _) = sys::effective_ids();
    let mounts = read()?.into_iter().filter(|m| m.kind == mountinfo::TYPE);
    let (mut own, others): (Vec<_>, Vec<_>) = mounts.partition(|m| m.owner == Some(user));
    if !points.is_empty() {
        own = points.iter().map(|point| find(point, &own, &others)).collect::<Result<_, _>>()?;
    }
    let answers = ask_all(&own);
    // One that was unmounted meanwhile is not listed.
    let still = read()?;
    let mounts = own.into_iter().zip(answers).filter(|(mount, _)| still.contains(mount));
    let mounts = mounts.map(|(mount, answer)| {
        let Answer { state, pid, stats } = answer.unwrap_or_else(|| Answer::without(State::Silent));
        Listed { source: mount.source, point: mount.point, state, pid, stats }
    });
    Ok(Listing { mounts: mounts.collect(), others: if points.is_empty() { others.len() } else { 0 } })
}

/// The mount on `point`: the last one, which covers the others.
fn find(point: &Path, own: &[Mount], others: &[Mount]) -> Result<Mount, Failure> {
    let path = Pinned::open(point).and_then(|root| root.path()).map_err(|e| Failure::system(point, &e))?;
    match own.iter().rfind(|m| m.point == path) {
        Some(mount) => Ok(mount.clone()),
        None if others.iter().any(|m| m.point == path) => Err(Failure::at(point, "mounted by another user")),
        None => Err(Failure::at(point, "fzmfs is not mounted there")),
    }
}

/// What a daemon has answered.
#[derive(Debug)]
struct Answer {
    state: State,
    pid: Option<u32>,
    stats: Option<Value>,
}

impl Answer {
    fn without(state: State) -> Self {
        Self { state, pid: None, stats: None }
    }
}

/// Asks the daemons of all `mounts`; `None` for one that does not answer in time. Its thread ends with the process: a
/// request that the daemon has not taken can be killed.
fn ask_all(mounts: &[Mount]) -> Vec<Option<Answer>> {
    let (sender, answers) = mpsc::channel();
    for (at, mount) in mounts.iter().enumerate() {
        let (own, job) = (sender.clone(), mount.clone());
        // The receiver may have given up.
        let run = move || _ = own.send((at, ask(&job)));
        if let Err(e) = thread::Builder::new().name("ask".into()).spawn(run) {
            sender.send((at, Answer::without(State::Refused(os_message(&e))))).ok();
        }
    }
    drop(sender);
    let end = Instant::now() + PATIENCE;
    let mut all: Vec<_> = mounts.iter().map(|_| None).collect();
    while let Ok((at, answer)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if let Some(slot) = all.get_mut(at) {
            *slot = Some(answer);
        }
    }
    all
}

/// Asks the daemon of one mount.
fn ask(mount: &Mount) -> Answer {
    let refused = |e: io::Error| Answer::without(State::Refused(os_message(&e)));
    let root = match Pinned::open_no_follow(&mount.point) {
        Ok(root) => root,
        Err(e) if mountinfo::is_dead(&e) => return Answer::without(State::Dead),
        Err(e) => return refused(e),
    };
    match root.mount_id() {
        Ok(id) if id == mount.id => {}
        Ok(_) => return Answer::without(State::Covered),
        Err(e) => return refused(e),
    }
    let stats = match sys::getxattr(&root.link(), stats::NAME) {
        Ok(stats) => serde_json::from_slice(&stats).ok().filter(Value::is_object),
        Err(e) if mountinfo::is_dead(&e) => return Answer::without(State::Dead),
        // The daemon of an earlier version.
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => None,
        Err(e) => return refused(e),
    };
    Answer { state: State::Serving, pid: daemon_id::process_id(&root).ok().flatten(), stats }
}
