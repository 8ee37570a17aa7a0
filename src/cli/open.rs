//! Opening a container for a command, as the options ask.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::args::{Device, Reading};
use super::memory;
use super::report::{Failure, Outcome};
use crate::bytes::wide;
use crate::cache::Cache;
use crate::checksum::{Beside, Verify};
use crate::error::Result;
use crate::format::{self, Container, FORMATS, Input, Options};
use crate::limits::Budget;
use crate::scratch::Scratch;
use crate::tree::Tree;

impl Reading {
    /// Decoding threads.
    pub(super) fn threads(&self) -> usize {
        match self.threads {
            Some(n) => usize::from(n),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Decoded bytes that are kept.
    pub(super) fn cache(&self) -> u64 {
        self.cache.unwrap_or_else(memory::default_cache)
    }

    /// What the format wants to know; `spill` is the disk space where none was given.
    pub(super) fn options(&self, spill: u64) -> Options {
        Options {
            verify: self.verify.into(),
            dicts: self.dict.clone(),
            dtype: self.dtype.clone(),
            shape: self.shape.as_ref().map(|shape| shape.0.clone()),
            budget: Budget::new(self.cache()),
            window: self.window,
            scratch: Scratch::new(self.spill.unwrap_or(spill)),
            ..Options::default()
        }
    }

    /// Sees to it that the device and the format that were asked for exist.
    ///
    /// # Errors
    /// Where one does not.
    pub(super) fn check(&self) -> Outcome {
        if let Device::Cuda(n) = self.device {
            return Err(Failure::new(format!(
                "device=cuda:{n}: this build decodes on the CPU only; leave the option out"
            )));
        }
        let named = |name: &str| FORMATS.iter().any(|format| format.name == name);
        match &self.format {
            Some(name) if !named(name) => {
                let names = FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
                Err(Failure::usage(format!("no format is called {name}; there are {names}")))
            }
            _ => Ok(()),
        }
    }

    /// Starts what commands other than `mount` decode with: a pool of as many threads as were asked for.
    ///
    /// # Errors
    /// As [`Reading::check`].
    pub(super) fn start(&self) -> Outcome {
        self.check()?;
        // A pool that was started before, as in tests, stays.
        rayon::ThreadPoolBuilder::new().num_threads(self.threads()).build_global().ok();
        Ok(())
    }
}

/// Decoded bytes that a stream keeps for each thread: several pieces, so that all decode ahead.
const STREAMED: u64 = 16 << 20;

/// An opened container, its virtual tree, and what decodes it.
pub(super) struct Opened {
    pub(super) container: Arc<dyn Container>,
    pub(super) tree: Tree,
    pub(super) cache: Arc<Cache>,
    beside: Beside,
}

impl Opened {
    /// Opens `file`. No thread is started yet.
    ///
    /// # Errors
    /// As [`format::open`].
    pub(super) fn open(file: &Path, reading: &Reading) -> Result<Self> {
        let input = Input::open(file)?;
        let options = reading.options(0);
        let container = format::open(&input, reading.format.as_deref(), &options)?;
        let tree = Tree::new(container.clone(), file.file_name().unwrap_or(file.as_os_str()))?;
        let threads = reading.threads();
        // What was read once is not read again: more would only be memory.
        let enough = STREAMED.saturating_mul(wide(threads)).max(4 * STREAMED);
        let cache = Cache::new(reading.cache.unwrap_or(memory::default_cache().min(enough)), threads);
        let sources = container.sources();
        cache.guard(move || sources.iter().try_for_each(|source| source.check()));
        let beside = match options.verify {
            Verify::Background(beside) => beside,
            Verify::First | Verify::Off => Beside::default(),
        };
        Ok(Self { container, tree, cache, beside })
    }

    /// Whether what was handed on counts: the checksums that were computed beside the reading are right, and the
    /// files are still those that were opened. Waits for the former.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn holds(&self) -> Result<()> {
        self.beside.settle()?;
        self.container.sources().iter().try_for_each(|source| source.check())
    }
}
