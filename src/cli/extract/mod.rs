//! `fzmfs extract`: writes virtual files as real files.
//!
//! Invariants: nothing outside the directory is modified: names in the tree are single path components, and files are
//! created through [`Beneath`]. A file gets its name only once it is complete.
#![forbid(unsafe_code)]

mod directory;
mod holes;

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::vec;

use crate::archive::{Archive, CopyError, Entries, Entry, EntryKind};
use crate::cli::args;
use crate::cli::beneath::Beneath;
use crate::cli::paths::not_too_many;
use crate::cli::progress::Progress;
use crate::cli::report::{self, Failure, Outcome};
use crate::error::{Error, Result};
use crate::parallel;
use crate::platform::{MAKES_LINKS, set_executable};
use crate::tree::Kind;

/// Left out unless requested by name: the stored bytes, and the same arrays in another form.
const LEFT_OUT: [&str; 2] = ["stored", "data.zarr"];
/// Maximum number of entries whose sizes are added for the progress bar.
const COUNTED: usize = 1 << 16;
/// Files that exist already of which each is named; of more, their number is said.
const NAMED: usize = 5;

pub(super) fn run(args: &args::Extract) -> Outcome {
    args.reading.start()?;
    let refused = |e| Failure::of(&args.file, &e);
    if let Some(directory) = args.reading.unmounted(&args.file, &args.mirroring).map_err(refused)? {
        return directory::run(&directory, args);
    }
    let archive = args.reading.open_named(&args.file).map_err(refused)?;
    let dir = || Beneath::make(&args.dir).map_err(|e| Failure::system(&args.dir, &e));
    archive_to(&archive, args, dir)
}

/// Extracts from `archive` to the directory that `dir` makes.
pub(super) fn archive_to(
    archive: &Archive,
    args: &args::Extract,
    dir: impl FnOnce() -> Result<Beneath, Failure>,
) -> Outcome {
    let refused = |e| Failure::of(&args.file, &e);
    let paths = requested(args, archive).map_err(refused)?;
    let wanted = || Wanted::new(paths.clone(), args.paths.is_empty());
    let all = total(wanted()).map_err(refused)?;
    let dir = dir()?;
    let progress = Progress::new(&args.file, all);
    let (failed, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let job = FileJob { args, dir, archive, progress, failed, taken };
    let files = Mutex::new(Files { wanted: wanted(), made: None, refused: None });
    let work = || {
        loop {
            let next = files.lock().unwrap_or_else(PoisonError::into_inner).next(&job);
            let Some(found) = next else { return Ok::<(), Infallible>(()) };
            if let Err(failure) = job.extract(&found) {
                job.report(&failure);
            }
        }
    };
    let Ok(_) = parallel::together(args.reading.options().thread_count().saturating_sub(1), work);
    job.date_directories(wanted());
    job.progress.finish();
    let more = job.taken.load(Ordering::Relaxed).saturating_sub(NAMED);
    if more > 0 {
        report::report(&Failure::at(&args.dir, format_args!("{more} more exist already; --force replaces them")));
    }
    if job.failed.into_inner() { Err(Failure::reported()) } else { Ok(()) }
}

/// A time in seconds, and in nanoseconds that count forward from these.
fn modified((seconds, nanoseconds): (i64, i64)) -> Option<SystemTime> {
    let (whole, part) = (Duration::from_secs(seconds.unsigned_abs()), Duration::from_nanos(nanoseconds.unsigned_abs()));
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if seconds < 0 { epoch.checked_sub(whole) } else { epoch.checked_add(whole) };
    time?.checked_add(part)
}

/// The entries requested by name; the root if there are none.
fn requested(args: &args::Extract, archive: &Archive) -> Result<Vec<Entry>> {
    if args.paths.is_empty() {
        return Ok(vec![archive.entry("")?]);
    }
    // Names in the tree are UTF-8, so a path that is not cannot match.
    args.paths.iter().map(|path| archive.entry(&path.to_string_lossy())).collect()
}

/// The bytes of all files, if they are known and there are not too many.
///
/// # Errors
/// Fails if there are more than [`MOST`](crate::cli::paths::MOST) entries: a file of a few bytes may claim hundreds of
/// millions.
fn total(wanted: Wanted) -> Result<Option<u64>> {
    let mut bytes = Some(0_u64);
    // A directory that cannot be listed is reported when its turn comes.
    for (count, found) in (1..).zip(wanted.flatten()) {
        not_too_many(count, found.path().rsplit_once('/').map_or("", |(dir, _)| dir))?;
        if count > COUNTED {
            bytes = None;
        } else if let (Some(sum), EntryKind::File) = (bytes, found.kind()) {
            bytes = found.size().map(|size| sum.saturating_add(size));
        }
    }
    Ok(bytes)
}

/// The requested entries and everything below them, each directory before its content, and each once.
struct Wanted {
    left: vec::IntoIter<Entry>,
    /// The paths of the requested entries before the last.
    before: Vec<String>,
    /// The path of the last one.
    last: Option<String>,
    below: Option<Entries>,
    /// Whether nothing was requested by name.
    is_default: bool,
}

impl Wanted {
    fn new(entries: Vec<Entry>, is_default: bool) -> Self {
        Self { left: entries.into_iter(), before: Vec::new(), last: None, below: None, is_default }
    }

    /// Whether `path` is left out: it is below an entry requested before, or it is only extracted if requested.
    fn is_left_out(&self, path: &str) -> bool {
        (self.is_default && LEFT_OUT.contains(&path)) || self.before.iter().any(|outer| is_inside(path, outer))
    }
}

impl Iterator for Wanted {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.below.as_mut().and_then(Iterator::next) {
                match &found {
                    Ok(found) if self.is_left_out(found.path()) => {
                        if let Some(below) = self.below.as_mut().filter(|_| found.kind() == EntryKind::Directory) {
                            below.skip_directory();
                        }
                    }
                    _ => return Some(found),
                }
                continue;
            }
            let top = self.left.next()?;
            self.before.extend(self.last.take());
            if self.is_left_out(top.path()) {
                continue;
            }
            self.last = Some(top.path().to_owned());
            self.below = None;
            if top.kind() == EntryKind::Directory {
                match top.walk() {
                    Ok(entries) => self.below = Some(entries),
                    Err(e) => return Some(Err(e)),
                }
            }
            if !top.path().is_empty() {
                return Some(Ok(top));
            }
        }
    }
}

/// Whether `path` is `outer` or below it.
fn is_inside(path: &str, outer: &str) -> bool {
    outer.is_empty() || path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The files and links to write. Their directories are created as they are met.
struct Files {
    wanted: Wanted,
    /// The last directory that was created, and the last one that could not be.
    made: Option<String>,
    refused: Option<String>,
}

impl Files {
    fn next(&mut self, job: &FileJob<'_>) -> Option<Entry> {
        loop {
            let found = match self.wanted.next()? {
                Ok(found) => found,
                Err(e) => {
                    job.report(&Failure::of(&job.args.file, &e));
                    continue;
                }
            };
            let dir = match found.kind() {
                EntryKind::Directory => found.path(),
                EntryKind::File | EntryKind::Link => found.path().rsplit_once('/').map_or("", |(dir, _)| dir),
            };
            if self.refused.as_deref().is_some_and(|outer| is_inside(dir, outer)) {
                continue;
            }
            if self.made.as_deref() != Some(dir) {
                if let Err(e) = job.dir.make_directory(dir) {
                    job.report(&Failure::system(&job.real(dir), &e));
                    self.refused = Some(dir.to_owned());
                    continue;
                }
                self.made = Some(dir.to_owned());
            }
            if found.kind() != EntryKind::Directory {
                return Some(found);
            }
        }
    }
}

struct FileJob<'a> {
    args: &'a args::Extract,
    dir: Beneath,
    archive: &'a Archive,
    progress: Progress,
    failed: AtomicBool,
    /// The number of files that exist already.
    taken: AtomicUsize,
}

impl FileJob<'_> {
    /// The real path for `path`, for messages.
    fn real(&self, path: &str) -> PathBuf {
        self.args.dir.join(path)
    }

    /// Writes one file or link. On error, or if this process is killed, an existing file is left unchanged.
    fn extract(&self, found: &Entry) -> Outcome {
        let force = self.args.force;
        let real = self.real(found.path());
        let taken = || self.taken(&real);
        let broken = |e: &Error| Failure::of_entry(&self.args.file, found.path(), e);
        let refused = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => Failure::system(&real, &e),
        };
        let slot = self.dir.slot(found.path()).map_err(refused)?;
        if found.kind() == EntryKind::Link && MAKES_LINKS {
            let target = self.archive.tree().link(found.ino()).map_err(|e| broken(&e))?;
            if !self.is_followed(found) {
                let time = self.archive.tree().cheap_attr(found.ino()).map(|attr| attr.mtime);
                return slot.link(&target, time, force).map_err(refused);
            }
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

    /// `real` exists already.
    fn taken(&self, real: &Path) -> Failure {
        if self.taken.fetch_add(1, Ordering::Relaxed) < NAMED {
            Failure::at(real, "exists already; --force replaces it")
        } else {
            Failure::reported()
        }
    }

    /// Whether the link `found` becomes what it leads to: it was requested itself, and leads to a file that is not extracted.
    fn is_followed(&self, found: &Entry) -> bool {
        let (tree, paths) = (self.archive.tree(), &self.args.paths);
        let file = tree.follow(found.ino()).ok().filter(|&ino| tree.kind(ino).is_ok_and(|kind| kind == Kind::File));
        let is_asked = |path: &str| {
            let mut asked = paths.iter().filter_map(|asked| asked.to_str());
            asked.any(|asked| is_inside(path, asked.trim_end_matches('/')))
        };
        paths.iter().any(|asked| asked == found.path())
            && file.and_then(|ino| tree.path(ino)).is_some_and(|path| !is_asked(&path))
    }

    /// Gives the directories of `wanted` their times, which each file that was written to them has changed.
    fn date_directories(&self, wanted: Wanted) {
        for found in wanted.flatten().filter(|found| found.kind() == EntryKind::Directory) {
            let attr = self.archive.tree().cheap_attr(found.ino());
            // One that could not be made was reported; Windows opens no directory to write to it.
            if let Some(time) = attr.and_then(|attr| modified(attr.mtime)) {
                self.dir.set_modified(found.path(), time).ok();
            }
        }
    }

    fn fill(&self, found: &Entry, file: &mut File) -> Result<(), CopyError> {
        let opened = found.open()?;
        self.progress.add_total(opened.len());
        opened.stream(&mut |bytes| {
            self.progress.advance(bytes.len() as u64);
            holes::write(file, bytes)
        })?;
        holes::end(file).map_err(CopyError::Write)?;
        let (tree, cache) = (self.archive.tree(), self.archive.cache());
        let attr = tree.attr(found.ino(), &**cache)?;
        if let Some(recorded) = attr.mode.filter(|mode| mode & 0o111 != 0) {
            set_executable(file, recorded.into()).map_err(CopyError::Write)?;
        }
        modified(attr.mtime).map_or(Ok(()), |time| file.set_modified(time)).map_err(CopyError::Write)
    }

    /// Prints and records a failure.
    fn report(&self, failure: &Failure) {
        self.failed.store(true, Ordering::Relaxed);
        self.progress.suspended(|| report::report(failure));
    }
}
