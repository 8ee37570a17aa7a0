//! Opens the containers of a directory.
//!
//! They share descriptors, memory, disk space, threads and the device; each has its own checks in the background.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use super::Rules;
use super::broken::Broken;
use crate::checksum::BackgroundChecks;
use crate::error::{Error, Result};
use crate::format::{self, Container, Input, Options};
use crate::source::{OpenFiles, Source, Top, Version};

/// The containers below a directory.
#[derive(Debug)]
pub struct Containers {
    /// The directory.
    pub top: Arc<Top>,
    /// Which files are containers.
    pub rules: Rules,
    /// What the containers share.
    pub options: Options,
    files: Arc<OpenFiles>,
}

/// An open container of a directory.
pub struct Opened {
    /// The container, or what stands for a broken one.
    pub container: Arc<dyn Container>,
    /// What it was parsed from.
    pub input: Input,
    /// The version of its file.
    pub version: Version,
    /// Its checks that run in the background.
    pub checks: BackgroundChecks,
    /// Why it is broken.
    pub error: Option<Error>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("version", &self.version).field("error", &self.error).finish_non_exhaustive()
    }
}

impl Containers {
    /// The containers below `top`, opened with `options`.
    pub fn new(top: Arc<Top>, rules: Rules, options: Options) -> Self {
        Self { top, rules, options, files: Arc::default() }
    }

    /// Opens the container at `path` below the directory. Decodes nothing.
    ///
    /// # Errors
    /// Only those that a later attempt may not meet: a broken container is one that says so.
    pub fn open(&self, path: &Path) -> Result<Opened> {
        let (source, version) = Source::on_demand(&self.top, path, &self.files)?;
        let verify = self.options.verify.renewed();
        let checks = verify.background();
        let pieces = self.options.pieces.renewed();
        let options = Options { verify, pieces, ..self.options.clone() };
        let below = self.top.below(path.parent().unwrap_or(Path::new("")))?;
        let shown = source.path().parent().unwrap_or(Path::new("")).to_path_buf();
        // For formats of several files.
        let dir = Some(below.into_dir(shown));
        let input = Input { dir, ..Input::of(source.clone())? };
        let opened = catch_unwind(AssertUnwindSafe(|| format::open(&input, None, &options)));
        let opened = opened.unwrap_or_else(|_| {
            Err(Error::corrupt("the decoder failed on it, which is a bug of fzmfs; please report it", "file"))
        });
        match opened {
            Ok(container) => Ok(Opened { container, input, version, checks, error: None }),
            Err(error) if error.is_lasting() => {
                let container = Arc::new(Broken { source, error: error.clone() });
                Ok(Opened { container, input, version, checks, error: Some(error) })
            }
            Err(error) => Err(error),
        }
    }
}
