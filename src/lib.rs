//! Read compressed scientific containers as directories of decoded files and arrays.
//!
//! FZM, Blosc2, ZXC, zTensor and Zstandard files open as an [`Archive`]: a tree of virtual files that are decoded piece
//! by piece as they are read. The program `fzmfs` mounts that tree; this library gives it to Rust programs.
//!
//! ```
//! use fzmfs::{Archive, Options};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/blosc2/n05_5d_f4.b2nd");
//! // `path` is a Blosc2 array of 5 x 4 x 6 x 3 x 7 32-bit floats.
//! let archive = Archive::open(path, &Options::default())?;
//! assert_eq!(archive.info()?.format, "blosc2");
//!
//! // Every container shows its content as files.
//! for entry in archive.list("")? {
//!     let entry = entry?;
//!     println!("{:?} {} {:?}", entry.kind(), entry.path(), entry.size());
//! }
//!
//! // A file is bytes, read at any place. Only the pieces that the range needs are decoded.
//! let file = archive.file("data.raw")?;
//! let mut bytes = [0; 100];
//! assert_eq!(file.len(), 4 * 5 * 4 * 6 * 3 * 7);
//! assert_eq!(file.read_at(file.len() - 10, &mut bytes)?, 10);
//!
//! // If the element type is known, a file is an array too: here elements 1000 to 1009, in C order.
//! if let Some(array) = file.array() {
//!     assert_eq!((array.dtype(), array.shape()), ("<f4", &[5, 4, 6, 3, 7][..]));
//!     let window = array.read(1000..1010)?;
//!     let numbers: Vec<f32> = window.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
//!     assert_eq!(numbers.len(), 10);
//! }
//!
//! // Whether every checksum in the container is right.
//! let report = archive.verify(|progress| println!("{} of {:?} bytes", progress.checked, progress.total))?;
//! assert!(report.bytes >= file.len());
//! # Ok::<(), fzmfs::Error>(())
//! ```
//!
//! # Where to find what
//!
//! The tree is the one that `fzmfs mount` shows: `info.json`, `data.raw` and `data.npy` for a container of one array,
//! `tensors/NAME.npy` for a checkpoint, `chunks/` for the parts that the container is made of, `stored/` for the same
//! as they are stored. `fzmfs ls -R FILE` prints it; [`Archive::walk`] iterates over it.
//!
//! [`Options`] says how much memory and disk space decoded data may take, on how many threads and on which
//! [`Device`] it is decoded, when large checksums are verified, and what a container does not say of itself:
//! dictionaries, element type, shape.
//!
//! # Promises
//!
//! - [`Archive`], [`File`] and [`Array`] are `Send + Sync`, and their clones are cheap: use one from any number of threads.
//! - No function prints, panics on a broken file, or changes the process: there is no global thread pool and no global
//!   setting. Each archive has its own cache, threads and temporary files. Diagnostics go to [`tracing`].
//! - An [`Error`] says what is wrong ([`Error::kind`]), in which field of the format ([`Error::what`]), at which byte of
//!   the container ([`Error::offset`]).
//! - Bytes are given out after the checksums over them were verified, unless [`Verify`] says otherwise. An archive that
//!   changes on disk while it is open gives [`ErrorKind::Changed`], not a mix of both.
//!
//! # Features
//!
//! All are on by default; the library needs none: `default-features = false`.
//!
//! | feature | brings |
//! | --- | --- |
//! | `cli` | the program `fzmfs` and its command line (clap, indicatif) |
//! | `fuse` | mounting (fuser) |
//! | `cuda` | decoding FZM on NVIDIA GPUs (cudarc, which loads the driver at run time) |
//!
//! # Words
//!
//! Each has one meaning in the whole source, and formats that use a word otherwise are translated:
//!
//! - **piece**: what is decoded and kept at a time: a range of about 1 MiB of a decoded stream. The layout of a stream
//!   says which. The cache, the readahead and the checks count in pieces.
//! - **chunk**: what a container compresses by itself and lists in its own index (a chunk of Blosc2, a frame of
//!   Zstandard): the files below `chunks/`. A piece is one or several chunks, or a part of one.
//! - **block**: the part of a chunk or stream that a codec decodes on its own (blocks of Blosc2, ZXC, Zstandard, Bitshuffle).
//!   Inodes of a directory come in a block too: of consecutive numbers.
//! - **unit**: the smallest number of bytes that a stage of an FZM pipeline decodes by itself; blocks of several stages
//!   together make a larger one.
//! - **window**: a range of bytes that is asked for and produced alone: of the output of an FZM stage, of an array, of what
//!   is decoded ahead. In Zstandard, as its format has it, the history that a decoder keeps.
//! - **segment**: what a range of a virtual file is put together from: literal bytes, stored bytes, a part of a piece. In
//!   FZM, as its format has it, the stored bytes of one buffer.
//! - **batch**: pieces in a row that are decoded in one go, where that is faster (on a GPU, or if they are small).
//!
//! # Inside
//!
//! The layers, each naming only those below it: `cli` (prints) over `fs` (fuser) over `archive` (this interface) over
//! `tree` (names, inodes) over `view` and `cache` over `format` (one folder each) over `codec`, `source`, `bytes`. A
//! container is parsed once; its streams decode piece by piece; a virtual file is a rule that maps byte ranges to
//! pieces. All modules are private to the project: they are public for its tests and benchmarks only, are not
//! documented here, and change without notice.

mod archive;

// No part of the interface: public for the tests and benchmarks of this repository.
#[doc(hidden)]
pub mod account;
#[doc(hidden)]
pub mod bytes;
#[doc(hidden)]
pub mod cache;
#[doc(hidden)]
pub mod checksum;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod codec;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod format;
#[cfg(feature = "fuse")]
#[doc(hidden)]
pub mod fs;
#[doc(hidden)]
pub mod gpu;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod once;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod view;

pub use archive::{
    Archive, Array, CopyError, Device, Entries, Entry, EntryKind, File, Options, Progress, Report, Verify,
};
pub use bytes::FileOffset;
pub use error::{Error, Kind as ErrorKind, Result};
pub use format::Info;
