//! `fzmfs mount`: combines the options of a mount.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::args::{self, Mount, MountArgs, Purpose};
use super::log::{self, Level, Target};
use super::report::{Failure, Outcome};
use crate::archive::{Archive, Directory};
use crate::format::{self, Container};
use crate::fs::{self, MountOptions, Owner, Process};
use crate::mirror::{self, Containers, Layout};
use crate::source::Location;
use crate::source::location::shown;

pub(super) fn run(args: &Mount, log: Option<&Path>) -> Outcome {
    let Purpose { fake, daemon } = args.purpose;
    if !args.foreground && !args.debug && !fake && !daemon {
        let mut words = args::normalised(std::env::args_os().collect());
        words.insert(2, "--daemon".into());
        return fs::start_daemon(words.into_iter().skip(1));
    }
    let system = |e: io::Error| Failure::system(&args.mountpoint, &e);
    // Before the first thread.
    let process = if daemon { Process::daemon() } else { Process::foreground() }.map_err(system)?;
    let level = if args.debug { Level::Requests } else { Level::Warnings };
    log::start(level, Target::choose(log, if daemon { Target::System } else { Target::Terminal }))?;
    args.reading.check()?;
    if !fake {
        fs::check_point(&args.mountpoint)?;
    }
    let file = absolute(&args.file);
    match process.until_signal(|| open(args, &file)).map_err(system)?? {
        _ if fake => Ok(()),
        OpenedSource::Directory(containers) => {
            let context = containers.options.clone();
            fs::mount_directory(&request(args, &file, context), *containers, process)
        }
        OpenedSource::Container(container, context) => {
            fs::mount_container(&request(args, &file, *context), &container, process)
        }
    }
}

/// A source that is open, to be mounted.
enum OpenedSource {
    Directory(Box<Containers>),
    Container(Arc<dyn Container>, Box<format::Options>),
}

fn open(args: &Mount, file: &Path) -> Result<OpenedSource, Failure> {
    let refused = |e| Failure::of(&args.file, &e);
    let directory = args.reading.directory(file, &args.mirroring).map_err(refused)?;
    if let Some(containers) = directory.and_then(Directory::containers) {
        args.reading.report_unused_remote(&args.file);
        return Ok(OpenedSource::Directory(Box::new(containers)));
    }
    let (options, gpu) = (args.reading.options(), args.reading.gpu());
    let (container, context) = Archive::open_container(file, &options, gpu).map_err(refused)?;
    args.reading.report_unused(&args.file, &container.info());
    let name = shown(file);
    let plain = match args.mirroring.rules().layout {
        Layout::Plain => mirror::plain(&container, name.file_name().unwrap_or_default()).map_err(refused)?,
        _ => None,
    };
    args.mirroring.report_unused(&args.file, plain.is_some());
    Ok(OpenedSource::Container(plain.unwrap_or(container), Box::new(context)))
}

fn request(args: &Mount, file: &Path, context: format::Options) -> MountOptions {
    let (reading, mounting) = (args.reading.options(), &args.mounting);
    MountOptions {
        options: context,
        cache: reading.cache_size(),
        threads: reading.thread_count(),
        access: access(mounting),
        owner: Owner { uid: mounting.uid, gid: mounting.gid, umask: mounting.umask.unwrap_or(0) },
        noexec: mounting.noexec,
        auto_unmount: mounting.auto_unmount,
        fsname: mounting.fsname.clone().or_else(|| Some(shown(file).into_owned().into_os_string())),
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
