//! One mount from its beginning to its end: threads are started here, and nowhere before.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuser::SessionACL;

use super::failure::Failure;
use super::look::Look;
use super::mount::{DEVICE, Mount};
use super::request::{Access, MountRequest};
use super::session::Session;
use super::signals::{self, Event, Signals};
use super::watch::Watch;
use super::{bdi, sys};
use crate::cache::Cache;
use crate::format::Container;
use crate::tree::Tree;

/// Event loops: they only look up and hand off, so that a few are enough for any number of readers.
const LOOPS: std::ops::RangeInclusive<usize> = 2..=8;

/// Mounts on `point` and serves until the mount has ended; calls `mounted` when it answers.
///
/// # Errors
/// Why there is no mount, or why it ended other than by a signal or an unmount.
pub(super) fn serve(
    request: &MountRequest,
    container: &Arc<dyn Container>,
    point: &Path,
    mounted: impl FnOnce() -> io::Result<()>,
) -> Result<(), Failure> {
    let fail = |why: String| Failure::new(&request.mountpoint, why);
    // Before the first thread, so that none of them gets the signals.
    let signals = Signals::block().map_err(|e| fail(e.to_string()))?;
    sys::ignore_broken_pipes();
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    // Here and not before the fork, which a device does not outlive.
    request.options.gpu.check().map_err(|why| fail(why.to_string()))?;
    let (mount, device) = Mount::make(request, point)?;
    // From here on it has to be taken out of the tree again, whatever happens.
    let served = start(request, container, device).and_then(|ended| {
        answers(point)?;
        tune(mount.device());
        mounted()?;
        tracing::info!("{}: mounted on {}", request.file.display(), point.display());
        Ok(ended)
    });
    match served {
        Ok(ended) => wait(request, &mount, &signals, &ended).map_err(|e| fail(e.to_string())),
        Err(e) => {
            mount.detach();
            Err(fail(e.to_string()))
        }
    }
}

/// Starts the session and its threads; the file reports an end when the session has ended.
fn start(request: &MountRequest, container: &Arc<dyn Container>, device: OwnedFd) -> io::Result<File> {
    let checks = request.options.threads.clone();
    checks.limit(request.threads);
    let cache = Cache::sharing(request.cache, request.threads, request.options.account.memory().clone());
    let (watch, bell) = Watch::new(container.sources(), container.folder())?;
    let watch = Arc::new(watch);
    let sources = watch.clone();
    cache.guard(move || sources.unchanged());
    let name = request.file.file_name().unwrap_or(OsStr::new(""));
    let tree = Tree::new(container.clone(), name).map_err(io::Error::other)?;
    let gpu = request.options.gpu.clone();
    let decoder = Box::new(move || gpu.decoder());
    let session = Session::new(tree, cache.clone(), checks, watch.clone(), Look::new(request.owner), decoder);

    let mut config = fuser::Config::default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some((cores / 4).clamp(*LOOPS.start(), *LOOPS.end()));
    // A descriptor for each loop, where the device can be opened once more.
    config.clone_fd = File::options().read(true).write(true).open(DEVICE).is_ok();
    let access = match request.access {
        Access::Owner => SessionACL::Owner,
        Access::OwnerAndRoot => SessionACL::RootAndOwner,
        Access::Everybody => SessionACL::All,
    };
    let session = fuser::Session::from_fd(session, device, access, config)?;
    let notifier = session.notifier();
    thread::Builder::new().name("watch".into()).spawn(move || watch.run(&bell, &notifier, || cache.clear()))?;
    let (ended, ends) = sys::pipe()?;
    thread::Builder::new().name("session".into()).spawn(move || {
        if let Err(e) = session.run() {
            tracing::error!("the session ended: {e}");
        }
        drop(ends);
    })?;
    Ok(ended)
}

/// Asks the mount itself: it is one only when it answers.
fn answers(point: &Path) -> io::Result<()> {
    std::fs::metadata(point).map(drop)
}

/// Sets what the kernel lets us set.
fn tune(number: &str) {
    if let Err(e) = bdi::raise_read_ahead(number) {
        tracing::debug!("the kernel's readahead stays as it is: {e}");
    }
    if let Some(seconds) = bdi::request_timeout() {
        tracing::warn!(
            "fs.fuse request timeout is {seconds} s: the kernel ends this mount when one answer takes longer; \
             sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0 turns that off"
        );
    }
}

/// Waits for the end: an unmount by somebody, or a signal, after which open files have a time to finish in.
fn wait(request: &MountRequest, mount: &Mount, signals: &Signals, ended: &File) -> io::Result<()> {
    let Event::Signal(signal) = signals.wait(ended, None)? else {
        tracing::info!("{}: unmounted; decoded by {}", mount.point().display(), request.options.gpu.decoder());
        return Ok(());
    };
    let grace = Duration::from_secs(request.grace);
    tracing::info!("{}: out of the tree after {}", mount.point().display(), signals::name(signal));
    mount.detach();
    match signals.wait(ended, Some(grace))? {
        Event::Ended => {}
        Event::Signal(signal) => tracing::warn!("ended by a second signal, {}", signals::name(signal)),
        Event::Timeout => {
            tracing::warn!("files were still open after {} s; their readers get ENOTCONN", grace.as_secs());
        }
    }
    Ok(())
}
