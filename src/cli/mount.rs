//! `fzmfs mount`: combines the options of a mount.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::args::{Mount, MountArgs};
use super::log::{self, Level, Target};
use super::mirrored::Mirrored;
use super::report::{Failure, Outcome};
use crate::archive::Archive;
use crate::format;
use crate::fs::{self, MountOptions, Owner};
use crate::source::Location;
use crate::source::location::shown;

pub(super) fn run(args: &Mount, log: Option<&Path>) -> Outcome {
    let foreground = args.foreground || args.debug;
    let level = if args.debug { Level::Requests } else { Level::Warnings };
    log::start(level, Target::choose(log, if foreground { Target::Terminal } else { Target::System }))?;
    args.reading.check()?;
    let mirrored = Mirrored::of(&args.file, &args.reading, &args.mirroring).map_err(|e| Failure::of(&args.file, &e))?;
    if args.fake && mirrored.is_none() {
        return args.reading.open(&args.file).map(drop).map_err(|e| Failure::of(&args.file, &e));
    }
    if args.fake {
        return Ok(());
    }
    fs::check_point(&args.mountpoint)?;
    let (options, gpu) = (args.reading.options(), args.reading.gpu());
    if let Some(mirrored) = mirrored {
        let (containers, context) = mirrored.containers();
        return fs::mount_directory(&request(args, foreground, context), containers);
    }
    // Report errors of the file before there is a second process or a mount.
    let opened = Archive::open_container(&args.file, &options, gpu);
    let (container, context) = opened.map_err(|e| Failure::of(&args.file, &e))?;
    fs::mount_container(&request(args, foreground, context), &container)
}

fn request(args: &Mount, foreground: bool, context: format::Options) -> MountOptions {
    let (reading, mounting) = (args.reading.options(), &args.mounting);
    MountOptions {
        options: context,
        cache: reading.cache_size(),
        threads: reading.thread_count(),
        access: access(mounting),
        owner: Owner { uid: mounting.uid, gid: mounting.gid, umask: mounting.umask.unwrap_or(0) },
        auto_unmount: mounting.auto_unmount,
        fsname: mounting.fsname.clone().or_else(|| source(&args.file)),
        foreground,
        idle: mounting.idle.filter(|&seconds| seconds > 0).map(|seconds| Duration::from_secs(seconds.into())),
        ..MountOptions::new(shown(&args.file), &args.mountpoint)
    }
}

/// The default source shown by `mount` and `df`: the absolute path, independent of the daemon's working directory; or
/// the URL, without what may be secret.
fn source(file: &Path) -> Option<OsString> {
    if Location::is_remote(file) {
        return Some(shown(file).into_owned().into_os_string());
    }
    Some(std::path::absolute(file).ok()?.into_os_string())
}

fn access(mounting: &MountArgs) -> fs::Access {
    match (mounting.allow_other, mounting.allow_root) {
        (true, _) => fs::Access::AllUsers,
        (false, true) => fs::Access::OwnerAndRoot,
        (false, false) => fs::Access::Owner,
    }
}
