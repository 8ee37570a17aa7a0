//! `fzmfs mount`: the options put together into what the mount is asked to be.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;

use super::args::{Mount, Mounting};
use super::log::{self, Level, Target};
use super::open::Opened;
use super::report::{Failure, Outcome};
use crate::fs::{self, Access, MountRequest, Owner};

pub(super) fn run(args: &Mount, log: Option<&Path>) -> Outcome {
    let foreground = args.foreground || args.debug;
    let level = if args.debug { Level::Requests } else { Level::Warnings };
    log::start(level, Target::choose(log, if foreground { Target::Terminal } else { Target::System }))?;
    args.reading.check()?;
    if args.fake {
        return Opened::open(&args.file, &args.reading).map(drop).map_err(|e| Failure::of(&args.file, &e));
    }
    fs::mount(&request(args, foreground)).map_err(|e| if e.is_usage() { Failure::usage(e) } else { Failure::new(e) })
}

fn request(args: &Mount, foreground: bool) -> MountRequest {
    let (reading, mounting) = (&args.reading, &args.mounting);
    MountRequest {
        format: reading.format.clone(),
        options: reading.options(true),
        cache: reading.cache(),
        threads: reading.threads(),
        access: access(mounting),
        owner: Owner { uid: mounting.uid, gid: mounting.gid, umask: mounting.umask.unwrap_or(0) },
        auto_unmount: mounting.auto_unmount,
        fsname: mounting.fsname.clone().or_else(|| source(&args.file)),
        foreground,
        ..MountRequest::new(&args.file, &args.mountpoint)
    }
}

/// What `mount` and `df` show where nothing was asked for: the path from the root, whatever the daemon's directory is.
fn source(file: &Path) -> Option<OsString> {
    Some(std::path::absolute(file).ok()?.into_os_string())
}

fn access(mounting: &Mounting) -> Access {
    match (mounting.allow_other, mounting.allow_root) {
        (true, _) => Access::Everybody,
        (false, true) => Access::OwnerAndRoot,
        (false, false) => Access::Owner,
    }
}
