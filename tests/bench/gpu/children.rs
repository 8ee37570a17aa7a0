//! Child processes with a time limit, whose output goes to a file.
//!
//! Nothing that a child leaves behind is waited for: a grandchild in a session of its own may hold the file open, and
//! is ended with the rest.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(5);

/// How a child ended.
#[derive(Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    /// Ended because of its limit.
    TimedOut,
    /// It could not be started.
    NotStarted(io::Error),
}

/// Makes this process the parent of what its children leave behind.
pub(crate) fn adopt_orphans() {
    // Without it orphans are not found; they only cost time.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Runs `command` for at most `limit`, with its output in `log`; then ends all that it has started.
pub(crate) fn run(command: &mut Command, limit: Duration, log: &File) -> End {
    let streams = log.try_clone().and_then(|out| log.try_clone().map(|err| (out, err)));
    let (out, err) = match streams {
        Ok(streams) => streams,
        Err(why) => return End::NotStarted(why),
    };
    let child = command.stdin(std::process::Stdio::null()).stdout(out).stderr(err).process_group(0).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(why) => return End::NotStarted(why),
    };
    let group = Pid::from_child(&child);
    let mut wait = |limit: Duration| {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    };
    let mut end = wait(limit).map_or(End::TimedOut, End::Exited);
    if matches!(end, End::TimedOut) {
        let _ = rustix::process::kill_process_group(group, Signal::TERM);
        wait(GRACE);
    }
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    if wait(GRACE).is_none() && matches!(end, End::Exited(_)) {
        end = End::TimedOut;
    }
    end_orphans();
    end
}

/// Ends the processes whose parent this one has become.
fn end_orphans() {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // Each of them may leave behind others.
    for _ in 0..10 {
        let orphans: Vec<Pid> =
            fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(child_of(own)).collect();
        if orphans.is_empty() {
            return;
        }
        for orphan in orphans {
            let _ = rustix::process::kill_process(orphan, Signal::KILL);
            let _ = rustix::process::waitpid(Some(orphan), rustix::process::WaitOptions::empty());
        }
    }
}

/// The process of an entry of /proc if its parent is `parent`.
fn child_of(parent: i32) -> impl Fn(fs::DirEntry) -> Option<Pid> {
    move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Its name, in parentheses, may hold anything; behind it come the state and the parent.
        let of = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        (of.parse() == Ok(parent)).then(|| Pid::from_raw(pid))?
    }
}
