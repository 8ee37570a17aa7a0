//! The fzmfs mounts of this user, for root those of all users, and their counters, for `fzmfs list`.
//!
//! The mounts come from the kernel's table, which needs no daemon. The daemons are asked concurrently, each by a child
//! process, for at most [`PATIENCE`]: a request that a stopped daemon has taken cannot be killed, so a process with a
//! thread in it would not end. A child is this program, which prints [`answer`].
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::mountinfo::{self, MountEntry, MountTable};
use super::pinned::Pinned;
use super::{daemon_id, stats, sys};
use crate::error::os_message;
use crate::failure::Failure;

/// How long the daemons may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Room for one answer; pipes pass fewer bytes at once.
const ANSWER: usize = 4096;

/// The mounts found.
#[derive(Debug)]
pub struct Listing {
    /// The mounts of this user, for root those of all users, in the order in which they were made.
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
    /// State of its daemon.
    pub state: DaemonState,
    /// The process id of the daemon, if it is valid in this PID namespace.
    pub pid: Option<u32>,
    /// The counters: an object.
    pub stats: Option<Value>,
}

/// The state of a mount's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonState {
    /// It answers.
    Serving,
    /// It answers, but the container has changed since it was mounted: reads fail.
    Changed,
    /// It has ended, and the mount is left.
    Dead,
    /// It does not answer in time.
    Silent,
    /// Something else is mounted over it.
    Covered,
    /// It cannot be asked, for the given reason.
    Refused(String),
}

/// Lists the mounts of this user, for root those of all users, on `points`; all of them if there are none.
///
/// # Errors
/// A message for the user: the table cannot be read, or one of `points` is not such a mount.
pub fn list(points: &[PathBuf]) -> Result<Listing, Failure> {
    let table = MountTable::open().map_err(|e| Failure::system(Path::new(mountinfo::PATH), &e))?;
    let read = || table.read().map_err(|e| Failure::system(Path::new(mountinfo::PATH), &e));
    let (user, _) = sys::effective_ids();
    let mounts = read()?.into_iter().filter(|m| m.kind == mountinfo::TYPE);
    // A daemon may refuse root too; the table has its mount.
    let (mut own, others): (Vec<_>, Vec<_>) = mounts.partition(|m| user == 0 || m.owner == Some(user));
    if !points.is_empty() {
        own = points.iter().map(|point| find(point, &own, &others)).collect::<Result<_, _>>()?;
    }
    let answers = ask_all(&own);
    // A mount that is gone by now is not listed.
    let still = read()?;
    let mounts = own.into_iter().zip(answers).filter(|(mount, _)| still.contains(mount));
    let mounts = mounts.map(|(mount, answer)| {
        let Answer { state, pid, stats } = answer.unwrap_or_else(|| Answer::without(DaemonState::Silent));
        let state = match (state, mount.owner) {
            (DaemonState::Refused(_), Some(owner)) if owner != user => {
                DaemonState::Refused(format!("it answers only the user with the id {owner}"))
            }
            (state, _) => state,
        };
        Listed { source: mount.source, point: mount.point, state, pid, stats }
    });
    Ok(Listing { mounts: mounts.collect(), others: if points.is_empty() { others.len() } else { 0 } })
}

/// The mount on `point`: the last one, which covers the others.
fn find(point: &Path, own: &[MountEntry], others: &[MountEntry]) -> Result<MountEntry, Failure> {
    let path = Pinned::open(point).and_then(|root| root.path()).map_err(|e| Failure::system(point, &e))?;
    match own.iter().rfind(|m| m.point == path) {
        Some(mount) => Ok(mount.clone()),
        None if others.iter().any(|m| m.point == path) => Err(Failure::at(point, "mounted by another user")),
        None => Err(Failure::at(point, "fzmfs is not mounted there")),
    }
}

/// The answer of a daemon.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    state: DaemonState,
    pid: Option<u32>,
    stats: Option<Value>,
}

impl Answer {
    fn without(state: DaemonState) -> Self {
        Self { state, pid: None, stats: None }
    }

    /// For the pipe between two processes of ours.
    fn to_bytes(&self) -> Vec<u8> {
        let (state, why) = match &self.state {
            DaemonState::Serving => (0, ""),
            DaemonState::Dead => (1, ""),
            DaemonState::Silent => (2, ""),
            DaemonState::Covered => (3, ""),
            DaemonState::Refused(why) => (4, why.as_str()),
            DaemonState::Changed => (5, ""),
        };
        json!([state, why, self.pid, self.stats]).to_string().into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [state, why, pid, stats]: [Value; 4] = serde_json::from_slice(bytes).ok()?;
        let state = match state.as_u64()? {
            0 => DaemonState::Serving,
            1 => DaemonState::Dead,
            2 => DaemonState::Silent,
            3 => DaemonState::Covered,
            5 => DaemonState::Changed,
            _ => DaemonState::Refused(why.as_str()?.to_owned()),
        };
        let pid = pid.as_u64().and_then(|pid| pid.try_into().ok());
        Some(Self { state, pid, stats: Some(stats).filter(Value::is_object) })
    }
}

/// Asks the daemons of all `mounts`; `None` for one that does not answer in time.
fn ask_all(mounts: &[MountEntry]) -> Vec<Option<Answer>> {
    let asked: Vec<io::Result<Child>> = mounts.iter().map(ask_apart).collect();
    let end = Instant::now() + PATIENCE;
    let answer = |child: io::Result<Child>| match child {
        Ok(child) => read_until(child, end),
        Err(e) => Some(Answer::without(DaemonState::Refused(os_message(&e)))),
    };
    asked.into_iter().map(answer).collect()
}

/// The answer that `child` prints, if it does so before `end`.
fn read_until(child: Child, end: Instant) -> Option<Answer> {
    let mut printed = child.stdout?;
    let left = end.saturating_duration_since(Instant::now());
    if sys::wait_readable(&[printed.as_fd()], Some(left)).ok()? != [true] {
        return None;
    }
    let mut bytes = vec![0; ANSWER];
    let len = printed.read(&mut bytes).ok()?;
    Answer::from_bytes(bytes.get(..len)?)
}

/// Starts a process that prints the [`answer`] of the daemon of `mount`. It may outlive this one, and so keeps neither
/// its directory nor its files open.
fn ask_apart(mount: &MountEntry) -> io::Result<Child> {
    let mut child = sys::this_program();
    child.args(["list", "--ask", &mount.id.to_string()]).arg(&mount.point).current_dir("/");
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// The answer of the daemon of the mount `id` on `point`, for [`list`], in one write.
pub fn answer(id: u64, point: &Path) -> Vec<u8> {
    sys::close_inherited();
    ask(id, point).to_bytes()
}

fn ask(id: u64, point: &Path) -> Answer {
    let refused = |e: io::Error| Answer::without(DaemonState::Refused(os_message(&e)));
    let root = match Pinned::open_no_follow(point) {
        Ok(root) => root,
        Err(e) if mountinfo::is_dead(&e) => return Answer::without(DaemonState::Dead),
        Err(e) => return refused(e),
    };
    match root.mount_id() {
        Ok(there) if there == id => {}
        Ok(_) => return Answer::without(DaemonState::Covered),
        Err(e) => return refused(e),
    }
    let stats = match sys::getxattr(&root.link(), stats::NAME) {
        Ok(stats) => serde_json::from_slice(&stats).ok().filter(Value::is_object),
        Err(e) if mountinfo::is_dead(&e) => return Answer::without(DaemonState::Dead),
        // The daemon of an earlier version.
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => None,
        Err(e) => return refused(e),
    };
    let has_changed = stats.as_ref().is_some_and(|stats| stats["changed"] == true);
    let state = if has_changed { DaemonState::Changed } else { DaemonState::Serving };
    Answer { state, pid: daemon_id::process_id(&root).ok().flatten(), stats }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_passes_a_pipe_whole() {
        let counters = format!("{{\"decoder\":\"{}\"}}", "x".repeat(900));
        let counters: Value = serde_json::from_str(&counters).unwrap();
        let mut answers = vec![Answer { state: DaemonState::Serving, pid: Some(7), stats: Some(counters) }];
        let states = [
            DaemonState::Serving,
            DaemonState::Dead,
            DaemonState::Silent,
            DaemonState::Covered,
            DaemonState::Changed,
            DaemonState::Refused("no\n\"".to_owned()),
        ];
        answers.extend(states.map(Answer::without));
        for answer in answers {
            let bytes = answer.to_bytes();
            assert!(bytes.len() < ANSWER);
            assert_eq!(Answer::from_bytes(&bytes), Some(answer));
        }
        assert!([&b""[..], b"[0]", b"[9,0,0,0]"].iter().all(|bytes| Answer::from_bytes(bytes).is_none()));
    }
}
