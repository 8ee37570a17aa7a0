//! The options of a user that formats need, and the resources that containers share.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use super::dtype::Dtype;
use super::file::Array;
use super::idle::IdleDecoders;
use super::nested::{OuterPieces, outer_pieces};
use super::space::GivenSpace;
use crate::account::{Account, Pieces};
use crate::checksum::{Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::gpu::Gpu;
use crate::index::Index;
use crate::limits::Limits;

/// User options that a format may need.
#[derive(Debug, Clone)]
pub struct Options {
    /// When to verify checksums that cover more than the bytes read.
    pub verify: Verify,
    /// The threads for these checksums and for other work over whole files.
    pub threads: Threads,
    /// Dictionary files, selected by their id.
    pub dicts: Vec<PathBuf>,
    /// The element type, for containers that do not record it: a NumPy name such as `f4` or `<i8`.
    pub dtype: Option<String>,
    /// The shape, for containers that do not record it; slowest dimension first.
    pub shape: Option<Vec<u64>>,
    /// Where the array is in space.
    pub space: GivenSpace,
    /// Upper bounds on the cost of a file.
    pub limits: Limits,
    /// The account of memory, disk space and work.
    pub account: Account,
    /// Maximum Zstandard window size, in bytes.
    pub window: u64,
    /// Decoders that are not in use.
    pub idle: Arc<IdleDecoders>,
    /// The store for decoded pieces that are expensive to decode again.
    pub pieces: Arc<Pieces>,
    /// The index on disk.
    pub index: Index,
    /// GPU decoding, if available.
    pub gpu: Arc<Gpu>,
    /// How many containers there are around this one.
    pub depth: u32,
    /// Size of the file that contains all of these.
    pub file_size: u64,
    /// Decoded pieces of containers that have others in them.
    pub outer_pieces: Arc<OuterPieces>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: Verify::default(),
            threads: Threads::default(),
            dicts: Vec::new(),
            dtype: None,
            shape: None,
            space: GivenSpace::default(),
            limits: Limits::default(),
            account: Account::new(1 << 30, 0),
            window: 128 << 20,
            idle: Arc::default(),
            pieces: Pieces::off(),
            index: Index::off(),
            gpu: Gpu::none(),
            depth: 0,
            file_size: 0,
            outer_pieces: Arc::new(outer_pieces()),
        }
    }
}

impl Options {
    /// The array in `len` decoded bytes: `own`, from the container, overridden by `dtype=` and `shape=`. The
    /// shape is kept if only the type changes, to one of the same size.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the two options describe no array, or one larger than `len`.
    pub fn array(&self, own: Option<Array>, len: u64) -> Result<Option<Array>> {
        if self.dtype.is_none() && self.shape.is_none() {
            return Ok(own);
        }
        let usage = |why: String, what: &'static str| Error::new(Kind::Usage(why.into()), what);
        let Dtype { descr, itemsize } = match (&self.dtype, &own) {
            (Some(name), _) => Dtype::parse(name)
                .filter(|dtype| dtype.itemsize > 0)
                .ok_or_else(|| usage(format!("NumPy has no element type {name}"), "dtype"))?,
            (None, Some(own)) => Dtype { descr: own.descr.clone(), itemsize: own.itemsize },
            (None, None) => return Err(usage("the container has no element type: give dtype= too".into(), "shape")),
        };
        let same = own.filter(|own| own.itemsize == itemsize).map(|own| own.shape);
        let shape = self.shape.clone().or(same).unwrap_or_else(|| vec![len.checked_div(itemsize).unwrap_or(0)]);
        let array = Array { descr, itemsize, shape };
        match array.byte_len() {
            Some(bytes) if bytes <= len => Ok(Some(array)),
            _ => Err(usage(format!("the array would be larger than the {len} decoded bytes"), "shape")),
        }
    }
}
