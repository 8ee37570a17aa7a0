//! The life of a mount, from start to end. All threads are started here.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuser::{Notifier, SessionACL};

use super::activity::Activity;
use super::adapter::{Adapter, Mounted};
use super::directory::MirroredDir;
use super::faults::Faults;
use super::held::{self, Holders};
use super::idle::Idle;
use super::inode_attr::{AttrBuilder, Numbering};
use super::killed::{Killed, Waits};
use super::loops::Loops;
use super::mount::{self, Mount, Point};
use super::offload::Offload;
use super::options::{Access, MountOptions};
use super::process::Process;
use super::session::Session;
use super::shared::Shared;
use super::signals::{self, Event, Signals};
use super::source_watch::Watch;
use super::{kernel_tuning, sys, umount};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::format::Container;
use crate::mirror::Containers;
use crate::tree::Tree;

/// The subject of a mount.
pub(super) enum Served {
    /// One container.
    Container(Arc<dyn Container>),
    /// The containers of a directory, and its other files.
    Directory(Box<Containers>),
}

/// Mounts and serves until the mount has ended.
///
/// # Errors
/// Fails if mounting fails, or if serving ends by anything but a signal or an unmount.
pub(super) fn serve(request: &MountOptions, served: Served, process: Process) -> Result<(), Failure> {
    let point = mount::check_point(&request.mountpoint)?;
    match served {
        Served::Container(container) => serve_parts(request, || container_parts(request, &container), point, process),
        Served::Directory(containers) => {
            if containers.top.prefix().is_none() {
                let outside = mount::check_outside(&point, containers.top.path());
                outside.map_err(|why| Failure::at(&request.mountpoint, why))?;
            }
            serve_parts(request, || directory_parts(request, *containers), point, process)
        }
    }
}

fn serve_parts(
    request: &MountOptions,
    parts: impl FnOnce() -> Result<Parts, Failure>,
    point: Point,
    mut process: Process,
) -> Result<(), Failure> {
    let refused = |e: io::Error| Failure::system(&request.mountpoint, &e);
    sys::ignore_broken_pipes();
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    request.options.gpu.check().map_err(|e| Failure::at(&request.mountpoint, e))?;
    // Fail before mounting, not after.
    let parts = parts()?;
    let loops = Loops::affordable().map_err(refused)?;
    let (mut mount, root, device) = Mount::make(request, &point)?;
    drop(point);
    let (activity, is_far) = (parts.activity.clone(), parts.is_far);
    // It has answered FUSE_INIT, and its loops run. No request is sent to make sure: a process that is killed while it
    // waits for an answer of its own never ends, nor does its mount.
    let ended = match parts.start(request, device, loops) {
        Ok(ended) => ended,
        Err(e) => {
            mount.undo(root);
            return Err(refused(e));
        }
    };
    // An open root would keep the mount busy.
    drop(root);
    tune(mount.number(), is_far);
    if let Err(e) = process.ready() {
        mount.detach();
        return Err(refused(e));
    }
    tracing::info!("{}: mounted on {}", request.file.display(), mount.point().display());
    let done = wait(request, &mut mount, &process.signals, &ended, &activity).map_err(refused);
    // Checks over whole files end with the mount.
    request.options.threads.close();
    done
}

/// The parts of a session that are created before mounting.
struct Parts {
    adapter: Adapter,
    /// Runs on its own thread: detects changes, and notifies the kernel.
    watch: Box<dyn FnOnce(&Notifier) + Send>,
    /// If requests may wait for long.
    waits: Option<Arc<Waits>>,
    /// Whether reads may wait for a server.
    is_far: bool,
    offload: Arc<Offload>,
    activity: Arc<Activity>,
    ended: File,
    ends: File,
}

fn container_parts(request: &MountOptions, container: &Arc<dyn Container>) -> Result<Parts, Failure> {
    let refused = |e: io::Error| Failure::system(&request.mountpoint, &e);
    let (cache, offload) = threads(request);
    let watch = Arc::new(Watch::new(container.sources(), container.folder()).map_err(refused)?);
    let faults = Faults::new(&request.file);
    let (failures, failed) = (watch.clone(), faults.clone());
    request.options.verify.background().on_failure(move |error| {
        failed.in_check(error);
        failures.mark_failed();
    });
    let sources = watch.clone();
    cache.source_check(move || sources.unchanged());
    let name = request.file.file_name().unwrap_or(OsStr::new(""));
    let tree = Tree::charging(container.clone(), name, &request.options.account)
        .map_err(|e| Failure::of(&request.file, &e))?;
    let gpu = request.options.gpu.clone();
    let decoder = Box::new(move || gpu.decoder());
    let waits = Arc::default();
    let killed = Killed::of(&waits, &**container);
    let is_far = killed.as_ref().is_some_and(Killed::is_far);
    let waits = killed.is_some().then_some(waits);
    if is_far {
        offload.expect_waits();
    }
    let attributes = AttrBuilder::new(request.owner, Numbering::default());
    let attributes = if is_far { attributes.far() } else { attributes };
    let activity = Arc::new(Activity::default());
    let users = held::users(&request.options.account, request.access);
    let holders = Holders::new(&users, 0, &activity);
    let mut shared =
        Shared::new(tree, faults, (cache.clone(), offload.clone()), watch.clone(), attributes, holders, decoder);
    shared.killed = killed;
    // By opening the root, fusermount3 finds out whether the mount is dead.
    let mounted = Mounted::Container(Arc::new(Session::new(shared)));
    let adapter = Adapter::new(mounted, activity.clone(), request.auto_unmount);
    let (ended, ends) = sys::pipe().map_err(refused)?;
    let watch = Box::new(move |notifier: &Notifier| watch.run(notifier, || cache.clear()));
    Ok(Parts { adapter, watch, waits, is_far, offload, activity, ended, ends })
}

fn directory_parts(request: &MountOptions, containers: Containers) -> Result<Parts, Failure> {
    let refused = |e: io::Error| Failure::system(&request.mountpoint, &e);
    let (cache, offload) = threads(request);
    let activity = Arc::new(Activity::default());
    // Names cannot be chosen so that their inode numbers collide.
    let seed = RandomState::new().hash_one(0);
    let directory =
        MirroredDir::new(containers, request, cache, offload.clone(), activity.clone(), seed).map_err(refused)?;
    let (ended, ends) = sys::pipe().map_err(refused)?;
    let end = ended.try_clone().map_err(refused)?;
    let (waits, is_far) = directory.waits();
    let waits = Some(waits);
    let adapter = Adapter::new(Mounted::Directory(directory.clone()), activity.clone(), true);
    // Until the session ends: then this is readable, and stays so.
    let watch = Box::new(move |notifier: &Notifier| directory.watch(notifier, &end));
    Ok(Parts { adapter, watch, waits, is_far, offload, activity, ended, ends })
}

/// The cache and the threads of a mount; no thread is started yet.
fn threads(request: &MountOptions) -> (Arc<Cache>, Arc<Offload>) {
    let checks = request.options.threads.clone();
    checks.limit(request.threads);
    let account = request.options.account.clone();
    let cache = Cache::sharing(request.cache, request.cache, request.threads, account);
    (cache.clone(), Offload::new(cache, checks))
}

impl Parts {
    /// Starts the session and its threads. The returned file becomes readable when the session ends; it contains the
    /// reason unless that was an unmount.
    fn start(self, request: &MountOptions, device: OwnedFd, loops: Loops) -> io::Result<File> {
        let Self { adapter, watch, waits, is_far, offload, ended, mut ends, .. } = self;
        let mut config = fuser::Config::default();
        config.n_threads = Some(loops.count);
        config.clone_fd = loops.own_descriptors;
        if !is_far {
            offload.share_loops(loops.count);
        }
        let access = match request.access {
            Access::Owner => SessionACL::Owner,
            Access::OwnerAndRoot => SessionACL::RootAndOwner,
            Access::AllUsers => SessionACL::All,
        };
        let (session, point) = (fuser::Session::from_fd(adapter, device, access, config)?, request.mountpoint.clone());
        let notifier = session.notifier();
        thread::Builder::new().name("session".into()).spawn(move || {
            if let Err(e) = session.run() {
                tracing::error!("{}: the session ended: {e}", point.display());
                // The reading end may be closed already.
                write!(ends, "{e}").ok();
            }
        })?;
        loops.wait(&ended)?;
        if let Some(waits) = waits {
            thread::Builder::new().name("killed".into()).spawn(move || waits.run())?;
        }
        thread::Builder::new().name("watch".into()).spawn(move || watch(&notifier))?;
        Ok(ended)
    }
}

/// Tunes kernel settings as far as permitted. For a server, the source reads ahead, not the kernel.
fn tune(number: &str, is_far: bool) {
    if !is_far && let Err(e) = kernel_tuning::raise_read_ahead(number) {
        tracing::debug!("the kernel's readahead stays as it is: {e}");
    }
    if let Some(seconds) = kernel_tuning::request_timeout() {
        tracing::warn!(
            "fs.fuse request timeout is {seconds} s: the kernel ends this mount when one answer takes longer; \
             sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0 turns that off"
        );
    }
}

/// Waits for an unmount or a signal. Unmounts a mount that has been idle for too long, unless it is in use as, say, a
/// current directory.
fn wait_or_unmount(
    request: &MountOptions,
    mount: &Mount,
    signals: &Signals,
    ended: &File,
    activity: &Activity,
) -> io::Result<Event> {
    let Some(limit) = request.idle else { return signals.wait(ended, None) };
    let mut idle = Idle::new(limit);
    loop {
        let event = signals.wait(ended, Some(idle.step()))?;
        if event != Event::Timeout {
            return Ok(event);
        }
        if !idle.is_over(activity) {
            continue;
        }
        let point = mount.point().display();
        match mount.unmount() {
            Ok(()) => {
                tracing::info!("{point}: unmounted after {limit:?} without use");
                // It may be mounted in other mount namespaces still.
                return signals.wait(ended, None);
            }
            Err(e) if umount::is_busy(&e) => tracing::debug!("{point}: idle, but not unmounted: {e}"),
            Err(e) => tracing::warn!("{point}: idle, but not unmounted: {e}"),
        }
    }
}

/// Waits for an unmount or a signal; after a signal, open files have a grace period.
fn wait(
    request: &MountOptions,
    mount: &mut Mount,
    signals: &Signals,
    ended: &File,
    activity: &Activity,
) -> io::Result<()> {
    let Event::Signal(signal) = wait_or_unmount(request, mount, signals, ended, activity)? else {
        // Has an effect only if the session ended without an unmount.
        mount.detach();
        tracing::info!("{}: unmounted; decoded by {}", mount.point().display(), request.options.gpu.decoder());
        return Ok(());
    };
    let grace = Duration::from_secs(request.grace);
    tracing::info!("{}: {}: detaching", mount.point().display(), signals::name(signal));
    mount.detach();
    match signals.wait(ended, Some(grace))? {
        Event::Ended => {}
        Event::Signal(signal) => {
            tracing::warn!("{}: ended by a second signal, {}", mount.point().display(), signals::name(signal));
        }
        Event::Timeout => {
            let (point, seconds) = (mount.point().display(), grace.as_secs());
            tracing::warn!("{point}: files were still open after {seconds} s; their readers get ENOTCONN");
        }
    }
    Ok(())
}
