//! Read compressed scientific containers as directories of decoded files and arrays.
//!
//! FZM, Blosc2, ZXC, zTensor, Zstandard and tar files open as an [`Archive`]: a tree of virtual files that are decoded
//! piece by piece as they are read. The `fzmfs` program mounts that tree; this library offers it to Rust programs.
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
//! // A file is a sequence of bytes, readable at any offset. Only the pieces that the range needs are decoded.
//! let file = archive.file("data.raw")?;
//! let mut bytes = [0; 100];
//! assert_eq!(file.len(), 4 * 5 * 4 * 6 * 3 * 7);
//! assert_eq!(file.read_at(file.len() - 10, &mut bytes)?, 10);
//!
//! // If the element type is known, a file is also an array: here elements 1000 to 1009, in C order.
//! if let Some(array) = file.array() {
//!     assert_eq!((array.dtype(), array.shape()), ("<f4", &[5, 4, 6, 3, 7][..]));
//!     let window = array.read(1000..1010)?;
//!     let numbers: Vec<f32> = window.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
//!     assert_eq!(numbers.len(), 10);
//! }
//!
//! // Verify every checksum in the container.
//! let report = archive.verify(|progress| println!("{} of {:?} bytes", progress.checked, progress.total))?;
//! assert!(report.bytes >= file.len());
//! # Ok::<(), fzmfs::Error>(())
//! ```
//!
//! # Overview
//!
//! The tree is the one that `fzmfs mount` shows: `info.json`, `data.raw` and `data.npy` for a container of one array,
//! `tensors/NAME.npy` for a checkpoint, `chunks/` for the decoded parts of the container, `stored/` for the same parts
//! as stored. `fzmfs ls -R FILE` prints it; [`Archive::walk`] iterates over it.
//!
//! [`Options`] sets the limits on memory and disk space for decoded data, the number of threads, the [`Device`] that
//! decodes, and when large checksums are verified. It also supplies data that a container may lack: dictionaries,
//! element type, shape.
//!
//! # Guarantees
//!
//! - [`Archive`], [`File`] and [`Array`] are `Send + Sync`, and cheap to clone: use one from any number of threads.
//! - No function prints, panics on a broken file, or changes process-wide state: there is no global thread pool and no
//!   global setting. Each archive has its own cache, threads and temporary files. Diagnostics go to [`tracing`].
//! - An [`Error`] has its cause ([`Error::kind`]), the field of the format ([`Error::what`]), and the byte of the
//!   container ([`Error::offset`]).
//! - A checksum over a block, chunk or piece is verified before its bytes are returned. A checksum that covers much
//!   more is verified as [`Verify`] says: by default before the first byte if that takes at most 64 MiB of reading or
//!   decoding, else before the last byte that it covers.
//! - A source may be a URL: `https://`, `http://` or `s3://BUCKET/KEY`. Only the ranges that are needed are fetched, of
//!   the version that was there at the start; the runtime for that belongs to the archive and ends with it.
//! - If the file changes on disk, or the object on its server, while the archive is open, reads fail with
//!   [`ErrorKind::Changed`]; they never mix old and new bytes.
//! - A call that waits for a server can be given up: see [`while_wanted`].
//!
//! # Features
//!
//! All are on by default; the library needs none of them (`default-features = false`).
//!
//! | feature | enables |
//! | --- | --- |
//! | `cli` | the `fzmfs` program and its command line (clap, indicatif) |
//! | `fuse` | mounting (fuser) |
//! | `cuda` | decoding FZM on NVIDIA GPUs (cudarc; the driver is loaded at run time) |
//! | `remote` | objects on HTTP servers and in S3 (reqwest, rustls, `object_store`) |
//! | `serve` | a server of HTTP, WebDAV and NFS (hyper, tokio) |
//!
//! # Systems
//!
//! All of it works on Linux. Without `fuse` and `cuda` it compiles for macOS, where it has not been run, and for Windows,
//! where it has been run under Wine. On Windows a change of a file is noticed when its writer closes it, not before; links
//! below a directory are not followed; and [`Options::index`] and [`Options::remote_cache`] have no effect, as it is not
//! known who else can write to their directories.
//!
//! # Glossary
//!
//! Each term has one meaning throughout the source; terms that a format uses differently are translated:
//!
//! - **piece**: the amount decoded and cached at a time: a range of about 1 MiB of a decoded stream, defined by the
//!   layout of the stream. The cache, the readahead and the checks count in pieces.
//! - **fragment**: a part of a piece that is decoded by itself: the units or blocks in some KiB. A reader that jumps
//!   decodes the fragments that it needs; the cache keeps them as it keeps pieces.
//! - **chunk**: a part of a container that is compressed separately (a Blosc2 chunk, a Zstandard frame); each is a file
//!   in `chunks/`. A piece is one or several chunks, or a part of one.
//! - **block**: the part of a chunk or stream that a codec decodes independently (blocks of Blosc2, ZXC, Zstandard,
//!   Bitshuffle).
//! - **unit**: the smallest number of bytes that a chain of FZM stages decodes independently: a common multiple of the
//!   blocks of its stages.
//! - **window**: a range of bytes that is requested and produced independently: of the output of an FZM stage, of an
//!   array, of a file that is read ahead. In Zstandard, as in its format, the history that a decoder keeps.
//! - **checkpoint**: a place in a long Zstandard frame from which a decoder can continue without what is before it.
//! - **record**: what the index keeps about one version of one file, under a name.
//! - **extent**: a range of a virtual file from one source: bytes in memory, bytes as stored, or a piece.
//! - **segment**: in FZM, as in its format, the stored bytes of one buffer.
//! - **batch**: consecutive pieces that are decoded in one call because that is faster (on a GPU, or small pieces).
//!
//! # Internals
//!
//! The layers, each using only those below it: `cli` (prints) over `fs` (fuser) and `serve`, which uses `archive` (this
//! interface), over `mirror` (directories of containers) over `tree` (names, inodes) over `view` and `cache` over `format`
//! (one folder each) over `codec`, `index` (what is kept for later mounts), `source`, `bytes`, and `platform` (what
//! differs between systems). `tests/suite/layers.rs` has the table, and fails where a file names another layer. A
//! container is parsed once; its streams are decoded piece by piece; a virtual file is a rule that maps byte ranges to
//! pieces. All modules are internal: they are public only for the project's tests and benchmarks, are not documented
//! here, and change without notice.
//!
//! The way of a byte from a mount, of which the first part is the same for all:
//!
//! - `fs/adapter` (the protocol), `fs/session` (one container), `fs/read` (from memory, or after decoding), `view` (which
//!   pieces a range needs), `cache` (there, being decoded, or to be decoded by a worker), and then the blob of the
//!   format. `archive` enters at `view`; `serve` and Python enter at `archive`.
//! - 4 KiB of FZM: `format/fzm/blob` (a fragment of a piece), then the stages from the last to the first, each a
//!   `ByteStream` that asks the one before for what it needs (`format/fzm/stage/bitshuffle`, `rze`, ...), and `segment` (the
//!   stored bytes).
//! - A window of a `b2nd`: `view/grid` (rows of an array in pieces of its blocks), `format/blosc2/chunk_blob` (pieces),
//!   `chunk_index` (which chunk), `chunk_store` (its stored bytes), `chunk_blocks` and `block` (the blocks in it), `codec` and
//!   `filter`.
//! - A long Zstandard frame in order: `cache/runs` (one thread decodes, another delivers), `codec/zstd/stream` (frames as
//!   pieces), `codec/zstd/random_access/long_pieces` (the decoder that stopped here, or a checkpoint), `reader`, `decode`,
//!   `pipeline` (several threads) or `libzstd`.
//!
//! Where new parts go:
//!
//! | a new | goes into |
//! | --- | --- |
//! | format | a folder in `format`, and a row of `FORMATS`; `tests/examples/format` is one to copy, with its tests |
//! | stage of FZM | a file in `format/fzm/stage`, and a row of its table; its kernel in `kernels` |
//! | view of the same bytes (as `.npy`, `.nhdr`, `data.zarr/`) | `view` (the bytes) and `tree/companions` (the name) |
//! | source of bytes | an `Origin` in `source` |
//! | door (as HTTP, NFS, Python) | a folder beside `serve`, above `archive`; its command in `cli` |
//! | thing that is expensive to find again | a record of `index`, by a name of its own |

// docs.rs names the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("positions and sizes of 64 bits are used as indices: a 64-bit target is needed");

mod archive;
mod clock;
mod sync;

// Not part of the API: public for the tests and benchmarks of this repository.
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
#[cfg(any(feature = "cli", feature = "fuse"))]
#[doc(hidden)]
pub mod failure;
#[doc(hidden)]
pub mod format;
#[cfg(feature = "fuse")]
#[doc(hidden)]
pub mod fs;
#[doc(hidden)]
pub mod gpu;
#[cfg(feature = "huge-pages")]
#[doc(hidden)]
pub mod huge_pages;
#[doc(hidden)]
pub mod index;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod lru_list;
#[doc(hidden)]
pub mod mirror;
#[doc(hidden)]
pub mod offset;
#[doc(hidden)]
pub mod once;
#[doc(hidden)]
pub mod paging;
#[doc(hidden)]
pub mod parallel;
#[doc(hidden)]
pub mod platform;
#[doc(hidden)]
pub mod pool;
#[doc(hidden)]
pub mod recent;
#[doc(hidden)]
pub mod reserve;
#[cfg(feature = "serve")]
#[doc(hidden)]
pub mod serve;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod view;
#[doc(hidden)]
pub mod wanted;

pub use archive::{
    Archive, Array, CopyError, Device, Directory, Entries, Entry, EntryKind, File, Node, NodeKind, Options, Progress,
    Report, Steps, Verify,
};
pub use bytes::FileOffset;
pub use error::{Error, Kind as ErrorKind, Result};
pub use format::Info;
pub use format::space::{Spacing, Units};
pub use gpu::{DeviceBuffer, ForeignStream};
pub use source::location::shown;
pub use wanted::{is_given_up, while_wanted};
