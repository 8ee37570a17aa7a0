//! `fzmfs extract` of a directory of containers: each container becomes a directory, other files are copied.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use super::{archive_to, modified};
use crate::archive::{CopyError, Directory, Node, NodeKind, Unopened};
use crate::cli::args;
use crate::cli::beneath::Beneath;
use crate::cli::cat::copy_plain;
use crate::cli::report::{self, Failure, Outcome};
use crate::error::{Error, Result};
use crate::platform::{FileType, slashed};
use crate::source::{Passed, stays_inside};

/// Extracts the requested paths, or everything.
///
/// # Errors
/// Fails if the directory cannot be written to; other failures are reported, and the rest is extracted.
pub(super) fn run(directory: &Directory, args: &args::Extract) -> Outcome {
    let everything = [OsStr::new("").to_owned()];
    let paths = if args.paths.is_empty() { &everything[..] } else { &args.paths };
    let places: Vec<_> = paths.iter().map(|path| directory.find(path)).collect();
    if !directory.is_far() && places.iter().flatten().any(|place| holds(&args.file.join(&place.file), &args.dir)) {
        let why = "inside the directory that is extracted, and would be extracted too; write to one outside of it";
        return Err(Failure::at(&args.dir, why));
    }
    let dir = Beneath::make(&args.dir).map_err(|e| Failure::system(&args.dir, &e))?;
    let mut job = ContainerJob { directory, args, dir, failed: false };
    for place in places {
        match place {
            Ok(place) => job.extract_all(&place),
            Err(e) => job.report(&Failure::of(&args.file, &e)),
        }
    }
    if job.failed { Err(Failure::reported()) } else { Ok(()) }
}

/// Whether `dir`, which need not exist, is below the directory `outer`.
fn holds(outer: &Path, dir: &Path) -> bool {
    let real = |dir: &Path| dir.canonicalize().ok();
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    real(outer).zip(dir.ancestors().find_map(real)).is_some_and(|(outer, dir)| dir.starts_with(outer))
}

struct ContainerJob<'a> {
    directory: &'a Directory,
    args: &'a args::Extract,
    dir: Beneath,
    failed: bool,
}

impl ContainerJob<'_> {
    fn report(&mut self, failure: &Failure) {
        if failure.line().is_some() {
            report::report(failure);
        }
        self.failed = true;
    }

    /// Extracts an entry and everything below it.
    fn extract_all(&mut self, place: &Node) {
        let (directory, args) = (self.directory, self.args);
        let find = || directory.find_container(place);
        if let Err(failure) = self.extract(place, place.is_container().then(find)) {
            self.report(&failure);
        }
        if place.kind != NodeKind::Dir {
            return;
        }
        let done = directory.walk_finding(&place.file, |place| {
            let place = place.map_err(|e| Failure::of(&args.file, &e));
            if let Err(failure) = place.and_then(|(place, found)| self.extract(&place, found)) {
                self.report(&failure);
            }
            Ok::<(), Infallible>(())
        });
        let Ok(()) = done;
    }

    /// Extracts one entry: a directory without its content; of a container, the one `found`.
    fn extract(&self, place: &Node, found: Option<Result<Unopened>>) -> Outcome {
        let real = self.args.dir.join(&place.shown);
        let refused = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => Failure::at(&real, "exists already; --force replaces it"),
            _ => Failure::system(&real, &e),
        };
        let broken = |e: &Error| Failure::of(&self.args.file.join(&place.file), e);
        let shown = slashed(&place.shown);
        let shown = shown.to_str().ok_or_else(|| Failure::at(&real, "not extracted: its name is not UTF-8"))?;
        if let (NodeKind::Container(inner), Some(found)) = (&place.kind, found) {
            self.dir.make_directory(shown).map_err(refused)?;
            let dir = self.dir.below(shown).map_err(refused)?;
            let archive = found.and_then(Unopened::open).map_err(|e| broken(&e))?;
            let paths = Some(inner.into()).into_iter().filter(|inner: &std::ffi::OsString| !inner.is_empty()).collect();
            let (file, reading) = (self.args.file.join(&place.file), self.args.reading.clone());
            let args = args::Extract { file, dir: real.clone(), paths, reading, ..self.args.clone() };
            return archive_to(&archive, &args, || Ok(dir));
        }
        if place.kind == NodeKind::Dir {
            return self.dir.make_directory(shown).map_err(refused);
        }
        // Its directory may not be part of the extraction.
        self.dir.make_directory(shown.rsplit_once('/').map_or("", |(dir, _)| dir)).map_err(refused)?;
        let slot = self.dir.slot(shown).map_err(refused)?;
        if slot.is_taken() && !self.args.force {
            return Err(refused(io::ErrorKind::AlreadyExists.into()));
        }
        if place.kind == NodeKind::File {
            let from = self.directory.file(&place.file).map_err(|e| broken(&e))?;
            let mut part = slot.begin().map_err(refused)?;
            copy(&from, &mut part.file).map_err(|e| match e {
                CopyError::Archive(e) => broken(&e),
                CopyError::Write(e) => refused(e),
            })?;
            return part.finish(self.args.force).map_err(refused);
        }
        if place.seen.kind != FileType::Symlink {
            return Err(Failure::at(&real, "not extracted: not a regular file"));
        }
        let target = self.directory.link(&place.file).map_err(|e| broken(&e))?;
        let depth = place.file.components().count().saturating_sub(1);
        match String::from_utf8(target) {
            Ok(target) if stays_inside(Path::new(&target), depth) => {
                slot.link(&target, Some(place.seen.mtime), self.args.force).map_err(refused)
            }
            _ => Err(Failure::at(&real, "not extracted: a link out of the directory")),
        }
    }
}

/// Copies a file and its modification time.
fn copy(from: &Passed, to: &mut File) -> Result<(), CopyError> {
    copy_plain(from, to)?;
    modified(from.seen()?.mtime).map_or(Ok(()), |time| to.set_modified(time)).map_err(CopyError::Write)
}
