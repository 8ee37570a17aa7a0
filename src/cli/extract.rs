//! `fzmfs extract`: writes virtual files as real files.
//!
//! Invariants: nothing outside the directory is modified: names in the tree are single path components, and files are
//! created through [`Beneath`]. A file gets its name only once it is complete.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use super::args;
use super::beneath::Beneath;
use super::paths::TreePath;
use super::progress::Progress;
use super::report::{self, Failure, Outcome};
use crate::archive::{Archive, CopyError};
use crate::error::{Error, Result};
use crate::tree::Kind;

/// Left out unless requested by name.
const STORED: &str = "stored";

pub(super) fn run(args: &args::Extract) -> Outcome {
    let archive = args.reading.start_and_open(&args.file)?;
    let refused = |e| Failure::of(&args.file, &e);
    let wanted = wanted(args, &archive).map_err(refused)?;
    let dir = Beneath::make(&args.dir).map_err(|e| Failure::system(&args.dir, &e))?;

    let known = |found: &TreePath| archive.tree().cheap_attr(found.ino).map(|attr| attr.size);
    let all = wanted.iter().filter(|found| found.kind == Kind::File).map(known).sum();
    let progress = Progress::new(&args.file, all);
    let job = Job { args, dir, archive: &archive, progress, failed: AtomicBool::new(false) };
    let files = Mutex::new(job.directories(wanted).into_iter());
    let work = || {
        loop {
            let next = files.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(found) = next else { return };
            if let Err(failure) = job.extract(&found) {
                job.report(&failure);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..args.reading.options().thread_count() {
            // Fewer threads only make it slower.
            drop(thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
    job.progress.finish();
    if job.failed.into_inner() { Err(Failure::reported()) } else { Ok(()) }
}

/// The requested entries, each directory before its content.
fn wanted(args: &args::Extract, archive: &Archive) -> Result<Vec<TreePath>> {
    let tree = archive.tree();
    if args.paths.is_empty() {
        return TreePath::at(tree, "".as_ref())?.below(tree, &|path| path == STORED);
    }
    let mut all: Vec<TreePath> = Vec::new();
    for path in &args.paths {
        let found = TreePath::at(tree, path)?;
        let below = if found.kind == Kind::Dir { found.below(tree, &|_| false)? } else { Vec::new() };
        all.push(found);
        all.extend(below);
    }
    // Entries below several of the paths are written once.
    let mut seen = HashSet::new();
    all.retain(|found| seen.insert(found.ino));
    Ok(all)
}

struct Job<'a> {
    args: &'a args::Extract,
    dir: Beneath,
    archive: &'a Archive,
    progress: Progress,
    failed: AtomicBool,
}

impl Job<'_> {
    /// Creates the directories of `wanted`; returns the files and links.
    fn directories(&self, wanted: Vec<TreePath>) -> Vec<TreePath> {
        let mut made: Option<String> = None;
        let mut refused: Option<String> = None;
        let mut files = Vec::new();
        for found in wanted {
            let dir = match found.kind {
                Kind::Dir => found.path.as_str(),
                Kind::File | Kind::Link => found.path.rsplit_once('/').map_or("", |(dir, _)| dir),
            };
            let inside =
                |outer: &str| dir.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            if refused.as_deref().is_some_and(inside) {
                continue;
            }
            if made.as_deref() != Some(dir) {
                if let Err(e) = self.dir.make_directory(dir) {
                    self.report(&Failure::system(&self.real(dir), &e));
                    refused = Some(dir.to_owned());
                    continue;
                }
                made = Some(dir.to_owned());
            }
            if found.kind != Kind::Dir {
                files.push(found);
            }
        }
        files
    }

    /// The real path for `path`, for messages.
    fn real(&self, path: &str) -> PathBuf {
        self.args.dir.join(path)
    }

    /// Writes one file or link. On error, or if this process is killed, an existing file is left unchanged.
    fn extract(&self, found: &TreePath) -> Outcome {
        let force = self.args.force;
        let real = self.real(&found.path);
        let taken = || Failure::at(&real, "exists already; --force replaces it");
        let broken = |e: &Error| Failure::of_entry(&self.args.file, &found.path, e);
        let refused = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => Failure::system(&real, &e),
        };
        let slot = self.dir.slot(&found.path).map_err(refused)?;
        if found.kind == Kind::Link {
            let target = self.archive.tree().link(found.ino).map_err(|e| broken(&e))?;
            return slot.link(&target, force).map_err(refused);
        }
        if !force && slot.is_taken() {
            return Err(taken());
        }
        let mut part = slot.begin().map_err(|e| Failure::system(&real, &e))?;
        self.fill(found, &mut part.file).map_err(|e| match e {
            CopyError::Archive(e) => broken(&e),
            CopyError::Write(e) => refused(e),
        })?;
        part.finish(force).map_err(refused)
    }

    fn fill(&self, found: &TreePath, file: &mut File) -> Result<(), CopyError> {
        let opened = self.archive.file(&found.path)?;
        self.progress.add_total(opened.len());
        opened.stream(&mut |bytes| {
            self.progress.advance(bytes.len() as u64);
            file.write_all(bytes)
        })?;
        let (tree, cache) = (self.archive.tree(), self.archive.cache());
        let (seconds, nanoseconds) = tree.attr(found.ino, &**cache)?.mtime;
        let since = Duration::new(seconds.unsigned_abs(), u32::try_from(nanoseconds).unwrap_or(0));
        // Times before 1970 are not set, since their nanoseconds count forward; such files keep their creation time.
        let mtime = SystemTime::UNIX_EPOCH.checked_add(since).filter(|_| seconds >= 0);
        mtime.map_or(Ok(()), |mtime| file.set_modified(mtime)).map_err(CopyError::Write)
    }

    /// Prints and records a failure.
    fn report(&self, failure: &Failure) {
        self.failed.store(true, Ordering::Relaxed);
        self.progress.suspended(|| report::report(failure));
    }
}
