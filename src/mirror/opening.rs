//! Opens the containers of a directory.
//!
//! They share descriptors, memory, disk space, threads and the device; each has its own checks in the background.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::candidates::{index_in, stat_container};
use super::flat::flattened;
use super::members::members;
use super::{Layout, Rules};
use crate::checksum::{BackgroundChecks, Threads};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Container, Input, Options};
use crate::platform::{FileType, slashed};
use crate::source::{OpenFiles, Place, Prefix, Seen, Source, Top};

/// Containers of a server that are looked up at a time: waiting takes no processor time.
pub const FAR: usize = 16;

/// The containers below a directory.
#[derive(Debug)]
pub struct Containers {
    /// The directory.
    pub top: Arc<Top>,
    /// Which files are containers.
    pub rules: Rules,
    /// Options shared by the containers.
    pub options: Options,
    files: Arc<OpenFiles>,
}

/// A container of a directory, before it is parsed.
#[derive(Debug)]
pub struct Found {
    /// The input to parse.
    pub input: Input,
    /// The file that identifies it: itself, or its index.
    pub seen: Seen,
}

/// How a container of a directory is shown with the layouts `flat` and `plain`.
#[derive(Debug)]
pub enum Look {
    /// As the files in its root.
    Files(Box<Opened>),
    /// As the members of the archive that was compressed, under the name of that.
    Archive,
    /// As a directory, under its own name.
    Tree,
}

/// An open container of a directory.
pub struct Opened {
    /// The container, or the stand-in for a broken one.
    pub container: Arc<dyn Container>,
    /// The input that it was parsed from.
    pub input: Input,
    /// The file that identifies it: itself, or its index.
    pub seen: Seen,
    /// Its checks that run in the background.
    pub checks: BackgroundChecks,
    /// The threads for its checks: those of all containers, until it is closed.
    pub threads: Threads,
    /// Why it is broken.
    pub error: Option<Error>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("seen", &self.seen).field("error", &self.error).finish_non_exhaustive()
    }
}

impl Containers {
    /// The containers below `top`, opened with `options`.
    pub fn new(top: Arc<Top>, rules: Rules, options: Options) -> Self {
        Self { top, rules, options, files: Arc::default() }
    }

    /// Opens the container at `path` below the directory. Decodes nothing. `seen`: its state from a listing, so that a
    /// server is not asked again.
    ///
    /// # Errors
    /// Only errors that may be transient: a container that is broken for good becomes one that explains the error.
    pub fn open(&self, path: &Path, seen: Option<&Seen>) -> Result<Opened> {
        self.parse(self.find(path, seen)?)
    }

    /// As [`Containers::open`], of a container that was found.
    ///
    /// # Errors
    /// As [`Containers::open`].
    pub fn parse(&self, found: Found) -> Result<Opened> {
        let Found { input, seen } = found;
        let verify = self.options.verify.renewed();
        let verify = if self.top.prefix().is_some() { verify.far() } else { verify };
        let checks = verify.background();
        let pieces = self.options.pieces.renewed();
        let threads = self.options.threads.renewed();
        let options = Options { verify, pieces, threads: threads.clone(), ..self.options.clone() };
        let (container, error) = format::open_or_explain(&input, &options)?;
        let container = if self.rules.layout == Layout::Plain { members(container)? } else { container };
        Ok(Opened { container, input, seen, checks, threads, error })
    }

    /// The input of [`Containers::open`]: the file or directory at `path`, with its start read.
    ///
    /// # Errors
    /// As [`Containers::open`].
    pub fn find(&self, path: &Path, seen: Option<&Seen>) -> Result<Found> {
        if let Some(prefix) = self.top.prefix() {
            let listed = seen.filter(|seen| seen.kind == FileType::RegularFile);
            return match listed.map(|seen| object(prefix, path, seen)) {
                // It was replaced since.
                Some(Err(e)) if matches!(e.kind(), Kind::Changed) => self.far(prefix, path),
                Some(opened) => opened,
                None => self.far(prefix, path),
            };
        }
        let (around, name) = self.top.around(path)?;
        let shown = self.top.path().join(path);
        if around.stat(name)?.kind == FileType::Directory {
            let dir = around.below(name)?;
            let seen = index_in(&dir)?;
            let dir = Some(dir.readable(shown.clone())?);
            let input =
                Input { path: shown, source: None, dir: dir.map(Place::Local), head: Vec::new(), content: None };
            return Ok(Found { input, seen });
        }
        let (source, seen) = Source::on_demand(&self.top, path, &self.files)?;
        // For formats of several files.
        let dir = Some(around.into_dir(shown.parent().unwrap_or(Path::new("")).to_path_buf())?);
        Ok(Found { input: Input { dir: dir.map(Place::Local), ..Input::of(source)? }, seen })
    }

    /// As [`Containers::find`], of an object, or of a directory of objects.
    fn far(&self, prefix: &Prefix, path: &Path) -> Result<Found> {
        let (around, name) = self.top.around(path)?;
        let seen = around.stat(name)?;
        if seen.kind == FileType::Directory {
            let seen = stat_container(&around, name)?;
            return Ok(Found { input: Input::below(prefix.objects(&key(path)?)?), seen });
        }
        object(prefix, path, &seen)
    }

    /// As [`Containers::open`], but with the files of its array alone, called `stem`, if it has any.
    ///
    /// # Errors
    /// As [`Containers::open`].
    pub fn open_flat(&self, path: &Path, seen: Option<&Seen>, stem: &[u8]) -> Result<Look> {
        let opened = self.open(path, seen)?;
        if opened.container.shown().is_some() {
            return Ok(Look::Archive);
        }
        match flattened(&opened.container, stem, self.rules.layout) {
            Ok(Some(container)) => Ok(Look::Files(Box::new(Opened { container, ..opened }))),
            Ok(None) => Ok(Look::Tree),
            // Its entries cannot be listed.
            Err(e) if e.is_lasting() => Ok(Look::Tree),
            Err(e) => Err(e),
        }
    }
}

/// The object at `path`, which was `seen`.
fn object(prefix: &Prefix, path: &Path, seen: &Seen) -> Result<Found> {
    let (source, objects) = prefix.source(&key(path)?, seen)?;
    let input = Input { dir: Some(Place::Remote(objects)), ..Input::of(source)? };
    Ok(Found { input, seen: seen.clone() })
}

/// `path` as a part of a key, which is UTF-8.
fn key(path: &Path) -> Result<String> {
    slashed(path).to_str().map(str::to_owned).ok_or_else(|| Error::new(Kind::NotFound, "object"))
}
