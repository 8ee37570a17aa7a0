//! Opening a container for a command, as the options ask.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::args::{Device, Reading};
use super::memory;
use super::report::{Failure, Outcome};
use crate::account::{Account, Pieces};
use crate::bytes::wide;
use crate::cache::Cache;
use crate::checksum::{Beside, Verify};
use crate::error::Result;
use crate::format::{self, Container, FORMATS, Input, Options};
use crate::gpu::{self, Gpu, Trouble};
use crate::source::Source;
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

    /// What the format wants to know. `keeps` says whether pieces are read again, so that those which are costly to
    /// decode are kept; where `spill=` is given they always are.
    pub(super) fn options(&self, keeps: bool) -> Options {
        // The cache holds a quarter of its budget in any case: the two together stay within it.
        let account = Account::new(self.cache() / 4 * 3, self.spill.unwrap_or(SPILL));
        let keeps = keeps || self.spill.is_some_and(|spill| spill > 0);
        let pieces = if keeps { Pieces::new(account.clone()) } else { Pieces::off() };
        Options {
            verify: self.verify.into(),
            dicts: self.dict.clone(),
            dtype: self.dtype.clone(),
            shape: self.shape.as_ref().map(|shape| shape.0.clone()),
            account,
            window: self.window,
            pieces,
            gpu: self.gpu(),
            ..Options::default()
        }
    }

    /// The GPU that may decode, opened when it is needed; the same each time.
    pub(super) fn gpu(&self) -> Arc<Gpu> {
        let room = self.gpu_memory;
        let make = || match self.device {
            Device::Cpu => Gpu::none(),
            Device::Auto => Gpu::new(move || gpu::open(0, room)),
            Device::Cuda(n) => Gpu::required(move || {
                gpu::open(n, room).map_err(|why| {
                    Trouble::Lost(format!("device=cuda:{n}: {why}; with device=auto the CPU decodes where it has to"))
                })
            }),
        };
        self.gpu.get_or_init(make).clone()
    }

    /// Sees to it that the format that was asked for exists, and the dictionaries can be read.
    ///
    /// # Errors
    /// Where they do not.
    pub(super) fn check(&self) -> Outcome {
        for dict in &self.dict {
            Source::open(dict).map_err(|e| Failure::of(dict, &e))?;
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

    /// Starts what commands other than `mount` decode with: a pool of as many threads as were asked for, and the
    /// GPU where one has to be used.
    ///
    /// # Errors
    /// As [`Reading::check`]; where that GPU cannot be used.
    pub(super) fn start(&self) -> Outcome {
        self.check()?;
        self.gpu().check().map_err(Failure::new)?;
        // A pool that was started before, as in tests, stays.
        rayon::ThreadPoolBuilder::new().num_threads(self.threads()).build_global().ok();
        Ok(())
    }
}

/// Disk space for decoded data that does not fit the memory.
const SPILL: u64 = 4 << 30;

/// Decoded bytes that a stream keeps for each thread: several pieces, so that all decode ahead.
const STREAMED: u64 = 16 << 20;

/// The same where a GPU decodes: several of its batches.
const FOR_A_GPU: u64 = 512 << 20;

/// An opened container, its virtual tree, and what decodes it.
pub(super) struct Opened {
    pub(super) container: Arc<dyn Container>,
    pub(super) tree: Tree,
    pub(super) cache: Arc<Cache>,
    beside: Beside,
    gpu: Arc<Gpu>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        tracing::info!("decoded by {}", self.gpu.decoder());
    }
}

impl Opened {
    /// Opens `file`. No thread is started yet.
    ///
    /// # Errors
    /// As [`format::open`].
    pub(super) fn open(file: &Path, reading: &Reading) -> Result<Self> {
        let input = Input::open(file)?;
        let options = reading.options(false);
        let container = format::open(&input, reading.format.as_deref(), &options)?;
        let tree = Tree::new(container.clone(), file.file_name().unwrap_or(file.as_os_str()))?;
        let threads = reading.threads();
        // What was read once is not read again: more would only be memory. A GPU takes more at a time.
        let enough = STREAMED.saturating_mul(wide(threads)).max(4 * STREAMED);
        let enough = if reading.gpu().is_likely() { enough.max(FOR_A_GPU) } else { enough };
        let cache = Cache::new(reading.cache.unwrap_or(memory::default_cache().min(enough)), threads);
        let files = container.clone();
        cache.guard(move || files.unchanged());
        let beside = match options.verify.clone() {
            Verify::Background(beside) => beside,
            Verify::First | Verify::Off => Beside::default(),
        };
        Ok(Self { container, tree, cache, beside, gpu: options.gpu })
    }

    /// Whether what was handed on counts: the checksums that were computed beside the reading are right, and the
    /// files are still those that were opened. Waits for the former.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn holds(&self) -> Result<()> {
        self.beside.settle()?;
        self.container.unchanged()
    }
}
