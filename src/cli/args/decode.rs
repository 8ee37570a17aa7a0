//! The options of every command that opens a container, and the types of their values.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use clap::{Args, ValueEnum};

use super::super::{seconds, size};
use crate::archive::{Device, Verify};
use crate::format::space::{Spacing, Units};
use crate::gpu::Gpu;

/// The options of every command that opens a container.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Reading")]
pub(in crate::cli) struct DecodeArgs {
    /// When to verify checksums that cover much more than the bytes read: before the first byte, in the background of
    /// reading, or never; auto: before the first byte if that reads or decodes at most 64 MiB, else in the background
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(in crate::cli) verify: VerifyMode,
    /// Decoded bytes to keep, with suffix K, M or G [default: 1/8 of the memory, at most 1G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(in crate::cli) cache: Option<u64>,
    /// Number of decoding threads, and of those that verify checksums [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(in crate::cli) threads: Option<u16>,
    /// Device that decodes FZM: auto (a GPU if it is faster), cpu, cuda or cuda:N (that GPU, or fail)
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(in crate::cli) device: Device,
    /// Maximum GPU memory to use [default: half of the free memory]
    #[arg(long, alias = "gpu_memory", value_name = "SIZE", value_parser = size::parse)]
    pub(in crate::cli) gpu_memory: Option<u64>,
    /// Open FILE as this format instead of detecting it
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) format: Option<String>,
    /// A dictionary file, chosen by its id; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) dict: Vec<PathBuf>,
    /// Element type, if the container has none, as in NumPy: f4, <i8
    #[arg(long, value_name = "TYPE")]
    pub(in crate::cli) dtype: Option<String>,
    /// Shape, if the container has none, slowest dimension first: 512x512
    #[arg(long, value_name = "SHAPE")]
    pub(in crate::cli) shape: Option<Shape>,
    /// Distance of the elements, if the container does not say, slowest dimension first: 2.5x1x0.5
    #[arg(long, value_name = "SPACING")]
    pub(in crate::cli) spacing: Option<Spacing>,
    /// What distances are measured in: um; or of each dimension, sxumxum
    #[arg(long, value_name = "UNIT")]
    pub(in crate::cli) units: Option<Units>,
    /// Maximum Zstandard window size, for files written with --long [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(in crate::cli) window: Option<u64>,
    /// Maximum temporary disk space for decoded data that does not fit in memory; 0 for none [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(in crate::cli) spill: Option<u64>,
    /// How long a server that fails is asked again before a read fails, with suffix s, m or h [default: 30s]
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse_wait)]
    pub(in crate::cli) timeout: Option<u32>,
    /// Open an object on a server only if it has this entity tag, as HTTP calls it
    #[arg(long, value_name = "ETAG")]
    pub(in crate::cli) expect: Option<String>,
    /// Open an object even if its server tells its versions apart by nothing: a change goes unnoticed
    #[arg(long)]
    pub(in crate::cli) unpinned: bool,
    /// Keep what is fetched from servers in this directory, for later mounts; at most SIZE [default: until a twentieth
    /// of the disk is free]
    #[arg(long, value_name = "DIR[:SIZE]", value_parser = size::parse_dir)]
    pub(in crate::cli) remote_cache: Option<(PathBuf, Option<u64>)>,
    /// Where to keep what is expensive to find again, for later mounts: a directory, or off [default: ~/.cache/fzmfs]
    #[arg(long, value_name = "off|DIR")]
    pub(in crate::cli) index: Option<IndexPlace>,
    /// Maximum size of the index [default: 1G]
    #[arg(long, alias = "index_size", value_name = "SIZE", value_parser = size::parse)]
    pub(in crate::cli) index_size: Option<u64>,
    /// Long options as a comma-separated list, as in mount(8) and fstab(5)
    #[arg(short = 'o', value_name = "OPTION,...")]
    pub(in crate::cli) option_lists: Vec<OsString>,
    /// The GPU of this process, created on first use.
    #[arg(skip)]
    pub(in crate::cli) gpu: OnceLock<Arc<Gpu>>,
}

/// Where the index is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum IndexPlace {
    Off,
    Dir(PathBuf),
}

impl FromStr for IndexPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            // Other words for off must not become a directory of that name.
            "" | "none" | "no" | "false" | "0" => Err("expected a directory or off".to_owned()),
            dir => Ok(Self::Dir(dir.into())),
        }
    }
}

/// [`Verify`] as an option value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum VerifyMode {
    Auto,
    First,
    Background,
    Off,
}

impl From<VerifyMode> for Verify {
    fn from(when: VerifyMode) -> Self {
        match when {
            VerifyMode::Auto => Self::Auto,
            VerifyMode::First => Self::First,
            VerifyMode::Background => Self::Background,
            VerifyMode::Off => Self::Off,
        }
    }
}

/// Elements per dimension, slowest first: `512x512`; commas also separate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Shape(pub(in crate::cli) Vec<u64>);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Result<Vec<u64>, _> = text.split(['x', ',']).map(str::parse).collect();
        match sizes {
            Ok(sizes) if sizes.iter().try_fold(1_u64, |n, &d| n.checked_mul(d)).is_some() => Ok(Self(sizes)),
            Ok(_) => Err("the number of elements does not fit in 64 bits".to_owned()),
            Err(_) => Err("expected the elements per dimension, slowest first, as in 512x512".to_owned()),
        }
    }
}

fn threads(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 1024".to_owned())
}
