//! Options of an archive, and the run-time objects built from them.
//!
//! [`Options`] holds plain values that can be compared, cloned and stored. The run-time objects (the account, the kept
//! pieces, the GPU) are created from them for each archive: [`Options::context`].
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::memory;
use crate::account::{Account, Pieces};
use crate::bytes::to_u64;
use crate::checksum::{self, BackgroundChecks, Threads};
use crate::format::{
    self,
    space::{GivenSpace, Spacing, Units},
};
use crate::gpu::{self, DeviceError, Gpu};
use crate::index::Index;
use crate::source::{CacheDir, RemoteOptions};

/// Disk space for decoded data that does not fit in memory.
const SPILL: u64 = 4 << 30;
/// Minimum memory for structure and for decoding, whatever `cache=` is; part of the 64 MiB for everything else.
const STRUCTURE: u64 = 1 << 20;
/// Maximum Zstandard window size.
const WINDOW: u64 = 128 << 20;
/// Maximum number of decoding threads.
const THREADS: usize = 1024;
/// Cache per thread of a sequential reader: several pieces, so that all threads can decode ahead.
const STREAMED: u64 = 12 << 20;
/// The same with a GPU: several batches.
const STREAMED_ON_GPU: u64 = 512 << 20;

/// Options for opening an archive. The defaults suit every container that describes itself.
///
/// ```
/// use fzmfs::{Device, Options, Verify};
///
/// let options = Options::new().cache(64 << 20).threads(4).device(Device::Cpu).verify(Verify::Background);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub(crate) verify: Verify,
    pub(crate) cache: Option<u64>,
    pub(crate) spill: Option<u64>,
    pub(crate) threads: Option<usize>,
    pub(crate) device: Device,
    pub(crate) gpu_memory: Option<u64>,
    pub(crate) format: Option<String>,
    pub(crate) dicts: Vec<PathBuf>,
    pub(crate) dtype: Option<String>,
    pub(crate) shape: Option<Vec<u64>>,
    pub(crate) spacing: Option<Spacing>,
    pub(crate) units: Option<Units>,
    pub(crate) window: u64,
    pub(crate) remote: RemoteOptions,
    pub(crate) index: Option<PathBuf>,
    pub(crate) index_size: Option<u64>,
}

/// When checksums that cover more than the bytes read are verified.
///
/// A checksum over a single piece is always verified before the piece is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// [`First`](Verify::First) where that reads or decodes at most 64 MiB, else [`Background`](Verify::Background).
    #[default]
    Auto,
    /// Before the first byte that they cover is served.
    First,
    /// While bytes are served, from the readers' own decoding where they read in order. The last bytes that a checksum
    /// covers are served after its verification; once it has failed, all of them are refused. See
    /// [`Archive::check`](crate::Archive::check).
    Background,
    /// Never.
    Off,
}

/// The device that decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Device {
    /// A GPU if one is usable and faster, otherwise the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU with this number; fails if it cannot be used.
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;

    /// Parses `auto`, `cpu`, `cuda` or `cuda:N`.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(number))) => Ok(Self::Cuda(number)),
            _ => Err("expected auto, cpu, cuda or cuda:N".to_owned()),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: Verify::default(),
            cache: None,
            spill: None,
            threads: None,
            device: Device::default(),
            gpu_memory: None,
            format: None,
            dicts: Vec::new(),
            dtype: None,
            shape: None,
            spacing: None,
            units: None,
            window: WINDOW,
            remote: RemoteOptions::default(),
            index: None,
            index_size: None,
        }
    }
}

impl Options {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets when checksums that cover more than the bytes read are verified. Default: [`Verify::Auto`].
    #[must_use]
    pub fn verify(mut self, when: Verify) -> Self {
        self.verify = when;
        self
    }

    /// Limits the memory for decoded data, in bytes. Default: an eighth of the machine's memory, at most 1 GiB.
    #[must_use]
    pub fn cache(mut self, bytes: u64) -> Self {
        self.cache = Some(bytes);
        self
    }

    /// Limits the temporary disk space for decoded data that does not fit in memory, in bytes; 0 for none. Default: 4
    /// GiB. At most half of the free space is used.
    #[must_use]
    pub fn spill(mut self, bytes: u64) -> Self {
        self.spill = Some(bytes);
        self
    }

    /// Sets the number of decoding threads, from 1 to 1024. Default: one per core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.clamp(1, THREADS));
        self
    }

    /// Sets the decoding device. Default: [`Device::Auto`].
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Limits the GPU memory, in bytes. Default: half of the free memory.
    #[must_use]
    pub fn gpu_memory(mut self, bytes: u64) -> Self {
        self.gpu_memory = Some(bytes);
        self
    }

    /// Sets the format by name, for example `zstd`. Default: detected.
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.format = Some(name.into());
        self
    }

    /// Adds a dictionary file; dictionaries are selected by their id.
    #[must_use]
    pub fn dict(mut self, file: impl Into<PathBuf>) -> Self {
        self.dicts.push(file.into());
        self
    }

    /// Sets the element type by its NumPy name (`f4`, `<i8`), for containers that do not record it.
    #[must_use]
    pub fn dtype(mut self, name: impl Into<String>) -> Self {
        self.dtype = Some(name.into());
        self
    }

    /// Sets the shape, slowest dimension first, for containers that do not record it.
    #[must_use]
    pub fn shape(mut self, shape: impl Into<Vec<u64>>) -> Self {
        self.shape = Some(shape.into());
        self
    }

    /// Sets the distance of the elements, slowest dimension first, for containers that do not record it.
    #[must_use]
    pub fn spacing(mut self, spacing: Spacing) -> Self {
        self.spacing = Some(spacing);
        self
    }

    /// Sets what distances are measured in.
    #[must_use]
    pub fn units(mut self, units: Units) -> Self {
        self.units = Some(units);
        self
    }

    /// Sets the maximum Zstandard window size, for files written with `--long`. Default: 128 MiB.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Sets how long a failing server is asked again before a read fails. Default: 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.remote.timeout = timeout;
        self
    }

    /// Opens an object on a server only if it has this `ETag`.
    #[must_use]
    pub fn expect(mut self, etag: impl Into<String>) -> Self {
        self.remote.expect = Some(etag.into());
        self
    }

    /// Opens an object on a server even if the server gives neither `ETag` nor `Last-Modified`, so that a change goes
    /// unnoticed. Default: no.
    #[must_use]
    pub fn unpinned(mut self, allowed: bool) -> Self {
        self.remote.unpinned = allowed;
        self
    }

    /// Keeps bytes fetched from servers, still compressed, in the directory `dir`, at most `size` bytes of them, for
    /// later archives and other processes. Default: nothing is kept. Without a size, it grows until a twentieth of the
    /// disk is free.
    #[must_use]
    pub fn remote_cache(mut self, dir: impl Into<PathBuf>, size: impl Into<Option<u64>>) -> Self {
        let dir = dir.into();
        // The working directory may change.
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        self.remote.cache = Some(CacheDir::new(dir, size.into()));
        self
    }

    /// Keeps in the directory `dir` what is expensive to find again about a file (decoder checkpoints in long Zstandard
    /// frames, sizes that had to be counted), for later archives and other processes; authenticated by a key of the user
    /// in `$XDG_STATE_HOME/fzmfs`. Default: nothing is kept; mounts and commands use `$XDG_CACHE_HOME/fzmfs`.
    #[must_use]
    pub fn index(mut self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        // The working directory may change.
        self.index = Some(std::path::absolute(&dir).unwrap_or(dir));
        self
    }

    /// Limits the index, in bytes: what was used least recently makes room. Default: 1 GiB.
    #[must_use]
    pub fn index_size(mut self, bytes: u64) -> Self {
        self.index_size = Some(bytes);
        self
    }

    /// The number of decoding threads.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The memory for decoded data, in bytes.
    pub(crate) fn cache_size(&self) -> u64 {
        self.cache.unwrap_or_else(memory::default_cache)
    }

    /// The GPU that may decode. It is opened when first needed.
    pub(crate) fn gpu(&self) -> Arc<Gpu> {
        let memory = self.gpu_memory;
        match self.device {
            Device::Cpu => Gpu::none(),
            Device::Auto => Gpu::detected(move || gpu::open(0, memory)),
            Device::Cuda(n) => Gpu::required(move || {
                gpu::open(n, memory).map_err(|why| {
                    DeviceError::Lost(format!(
                        "device=cuda:{n}: {why}; with device=auto the CPU decodes where it has to"
                    ))
                })
            }),
        }
    }

    /// The memory and disk space for decoded data, of one archive or of several.
    pub(crate) fn account(&self) -> Account {
        // The cache always keeps a quarter of its budget, so that both together stay within it.
        Account::new((self.cache_size() / 4 * 3).max(STRUCTURE), self.spill.unwrap_or(SPILL))
    }

    /// Options for the formats: the applicable user options, and the run-time objects of one archive.
    pub(super) fn context(&self, access: Access, gpu: Arc<Gpu>, account: Account) -> format::Options {
        let pieces = match access {
            Access::Random => Pieces::new(account.clone()),
            Access::Sequential => Pieces::read_once(account.clone()),
        };
        format::Options {
            verify: self.verify.into(),
            threads: Threads::new(self.thread_count()),
            dicts: self.dicts.clone(),
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            space: GivenSpace { spacing: self.spacing.clone(), units: self.units.clone() },
            account,
            window: self.window,
            pieces,
            index: self.index.clone().map_or_else(Index::off, |dir| Index::of_user(dir, self.index_size)),
            gpu,
            ..format::Options::default()
        }
    }

    /// Whether pieces that are expensive to decode are kept: for random access, or if disk space was granted.
    pub(super) fn keeps(&self, access: Access) -> bool {
        access == Access::Random || self.spill.is_some_and(|spill| spill > 0)
    }

    /// The cache size of one archive, in bytes.
    pub(super) fn cache_for(&self, access: Access, gpu: &Gpu) -> u64 {
        if access == Access::Random {
            return self.cache_size();
        }
        let enough = streamed(self.thread_count(), gpu.is_possible());
        self.cache.unwrap_or_else(|| memory::default_cache().min(enough))
    }
}

/// The largest cache of a reader in order: bytes are read once, so a larger one would only waste memory. A GPU decodes
/// larger batches.
fn streamed(threads: usize, has_gpu: bool) -> u64 {
    let least = if has_gpu { STREAMED_ON_GPU } else { 4 * STREAMED };
    STREAMED.saturating_mul(to_u64(threads)).max(least)
}

/// The access pattern of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Each byte once, in order: little is cached.
    Sequential,
    /// Random and repeated: pieces that are expensive to decode are kept.
    Random,
}

impl From<Verify> for checksum::Verify {
    fn from(when: Verify) -> Self {
        match when {
            Verify::Auto => Self::Auto(BackgroundChecks::default()),
            Verify::First => Self::First,
            Verify::Background => Self::Background(BackgroundChecks::default()),
            Verify::Off => Self::Off,
        }
    }
}

#[cfg(test)]
mod tests;
