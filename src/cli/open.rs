//! Opens archives with the options of a command.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::args::{DecodeArgs, IndexPlace, MirrorArgs};
use super::report::{Failure, Outcome};
use crate::archive::{Access, Archive, Directory, Options};
use crate::error::{Error, Kind};
use crate::format::FORMATS;
use crate::gpu::Gpu;
use crate::index::places;
use crate::mirror::Layout;
use crate::source::Source;

impl DecodeArgs {
    /// The archive options.
    pub(super) fn options(&self) -> Options {
        let mut options = Options::new().verify(self.verify.into()).device(self.device);
        options.window = self.window.unwrap_or(options.window);
        options.cache = self.cache;
        options.spill = self.spill;
        options.threads = self.threads.map(usize::from);
        options.gpu_memory = self.gpu_memory;
        options.format.clone_from(&self.format);
        options.dicts.clone_from(&self.dict);
        options.dtype.clone_from(&self.dtype);
        options.remote.expect.clone_from(&self.expect);
        options.remote.unpinned = self.unpinned;
        options.remote.timeout =
            self.timeout.map_or(options.remote.timeout, |seconds| Duration::from_secs(seconds.into()));
        if let Some((dir, size)) = &self.remote_cache {
            options = options.remote_cache(dir, *size);
        }
        options = match self.index.clone() {
            Some(IndexPlace::Off) => options,
            Some(IndexPlace::Dir(dir)) => options.index(dir),
            None => places::index().into_iter().fold(options, Options::index),
        };
        options.index_size = self.index_size;
        options.spacing.clone_from(&self.spacing);
        options.units.clone_from(&self.units);
        options.shape = self.shape.as_ref().map(|shape| shape.0.clone());
        options
    }

    /// The GPU that may decode, opened when needed; shared by all files of a command.
    pub(super) fn gpu(&self) -> Arc<Gpu> {
        self.gpu.get_or_init(|| self.options().gpu()).clone()
    }

    /// Opens `file` for reading each byte once. Starts no thread yet.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub(super) fn open(&self, file: &Path) -> Result<Archive, Error> {
        Archive::open_with(file, &self.options(), Access::Sequential, self.gpu())
    }

    /// Opens `file` if it is a directory of containers, and not one container.
    ///
    /// # Errors
    /// From open(2); of a server as [`Archive::open`].
    pub(super) fn directory(&self, file: &Path, mirroring: &MirrorArgs) -> Result<Option<Directory>, Error> {
        Directory::of(file, &self.options(), mirroring.rules(), self.gpu(), Access::Sequential)
    }

    /// As [`DecodeArgs::directory`], for a command other than `mount`; warns of options that have no effect on it.
    ///
    /// # Errors
    /// As [`DecodeArgs::directory`]; [`Kind::Usage`] for a layout that only mounts have.
    pub(super) fn unmounted(&self, file: &Path, mirroring: &MirrorArgs) -> Result<Option<Directory>, Error> {
        let found = self.directory(file, mirroring)?;
        match found.as_ref().map(Directory::layout) {
            None => mirroring.report_unused(file, false),
            Some(Layout::Flat | Layout::Plain) => {
                return Err(Error::new(Kind::Usage("only a mount has the layouts flat and plain".into()), "layout"));
            }
            Some(Layout::Replace | Layout::Beside) => self.report_unused_remote(file),
        }
        Ok(found)
    }

    /// As [`DecodeArgs::open`], for a file that the user names; warns of options that have no effect on it.
    ///
    /// # Errors
    /// As [`DecodeArgs::open`].
    pub(super) fn open_named(&self, file: &Path) -> Result<Archive, Error> {
        let archive = self.open(file)?;
        self.report_unused(file, &archive.info()?);
        Ok(archive)
    }

    /// Checks that the requested format exists and the dictionaries can be opened.
    ///
    /// # Errors
    /// Fails if one of them does not.
    pub(super) fn check(&self) -> Outcome {
        for dict in &self.dict {
            Source::open(dict).map_err(|e| Failure::of(dict, &e))?;
        }
        let named = |name: &str| FORMATS.iter().any(|format| format.name == name);
        match &self.format {
            Some(name) if !named(name) => {
                let names = FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
                Err(Failure::usage(format!("unknown format {name}; supported formats: {names}")))
            }
            _ => Ok(()),
        }
    }

    /// As [`DecodeArgs::check`]; also opens the GPU if it is required.
    ///
    /// # Errors
    /// As [`DecodeArgs::check`]; also fails if that GPU cannot be used.
    pub(super) fn start(&self) -> Outcome {
        self.check()?;
        self.gpu().check().map_err(Failure::new)
    }
}
