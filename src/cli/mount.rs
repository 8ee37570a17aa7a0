//! `fzmfs mount`: combines the options of a mount.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{Mount, MountArgs};
use super::log::{self, Level, Target};
use super::report::{Failure, Outcome};
use crate::archive::{Archive, Directory};
use crate::format;
use crate::fs::{self, MountOptions, Owner};
use crate::source::Location;
use crate::source::location::shown;

pub(super) fn run(args: &Mount, log: Option<&Path>) -> Outcome {
    let foreground = args.foreground || args.debug;
    let level = if args.debug { Level::Requests } else { Level::Warnings };
    log::start(level, Target::choose(log, if foreground { Target::Terminal } else { Target::System }))?;
    args.reading.check()?;
    let file = absolute(&args.file);
    let directory = args.reading.directory(&file, &args.mirroring).map_err(|e| Failure::of(&args.file, &e))?;
    if args.fake && directory.is_none() {
        return args.reading.open(&args.file).map(drop).map_err(|e| Failure::of(&args.file, &e));
    }
    if args.fake {
        return Ok(());
    }
    fs::check_point(&args.mountpoint)?;
    match directory {
        Some(_) => args.reading.report_unused_remote(&args.file),
        None => args.mirroring.report_unused(&args.file),
    }
    let (options, gpu) = (args.reading.options(), args.reading.gpu());
    if let Some(containers) = directory.and_then(Directory::containers) {
        let context = containers.options.clone();
        return fs::mount_directory(&request(args, &file, foreground, context), containers);
    }
    // Report errors of the file before there is a second process or a mount.
    let opened = Archive::open_container(&file, &options, gpu);
    let (container, context) = opened.map_err(|e| Failure::of(&args.file, &e))?;
    args.reading.report_unused(&args.file, &container.info());
    fs::mount_container(&request(args, &file, foreground, context), &container)
}

fn request(args: &Mount, file: &Path, foreground: bool, context: format::Options) -> MountOptions {
    let (reading, mounting) = (args.reading.options(), &args.mounting);
    MountOptions {
        options: context,
        cache: reading.cache_size(),
        threads: reading.thread_count(),
        access: access(mounting),
        owner: Owner { uid: mounting.uid, gid: mounting.gid, umask: mounting.umask.unwrap_or(0) },
        auto_unmount: mounting.auto_unmount,
        fsname: mounting.fsname.clone().or_else(|| Some(shown(file).into_owned().into_os_string())),
        foreground,
        idle: mounting.idle.filter(|&seconds| seconds > 0).map(|seconds| Duration::from_secs(seconds.into())),
        ..MountOptions::new(shown(file), &args.mountpoint)
    }
}

/// The container as the daemon, which works in another directory, and its log name it.
fn absolute(file: &Path) -> PathBuf {
    match Location::of(file) {
        Ok(Location::Local(path)) => std::path::absolute(&path).unwrap_or_else(|_| path.into_owned()),
        _ => file.to_owned(),
    }
}

fn access(mounting: &MountArgs) -> fs::Access {
    match (mounting.allow_other, mounting.allow_root) {
        (true, _) => fs::Access::AllUsers,
        (false, true) => fs::Access::OwnerAndRoot,
        (false, false) => fs::Access::Owner,
    }
}
