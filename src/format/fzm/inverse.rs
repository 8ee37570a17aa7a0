//! The inverses of stages as data: the parameters of an inverse and the lookups that it needs besides its input.
//!
//! Reference: sections 5 and 10 of the FZM reference. A stage describes the stream that it produces with an [`Inverse`]
//! (see [`ByteStream::derivation`](super::stream::ByteStream::derivation)), so that another decoder can produce it.
//! This module knows neither the stages nor the decoders.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;

/// How a stream is computed from its input, the stream of the stage's first forward output.
#[derive(Debug, Clone)]
pub enum Inverse {
    /// Bit planes to elements.
    Bitshuffle(Bitshuffle),
    /// Coded to plain signed integers.
    SignCoding(SignCoding),
    /// Packed to whole integers.
    Bitpack(Bitpack),
    /// Differences to values.
    Difference(Difference),
    /// Differences along 2 or 3 dimensions to values; in one dimension, they are a [`Difference`].
    Lorenzo(Lorenzo),
    /// Quantized differences to floats.
    LorenzoQuant(LorenzoQuant),
    /// Quantized values to floats.
    Quantizer(Quantizer),
    /// Runs to elements.
    Rle(Rle),
    /// Chunks without zero bytes to bytes.
    Rze(Rze),
    /// Codes to symbols.
    Huffman(Huffman),
    /// Bit planes of blocks to integers.
    AdaptiveBitpack(AdaptiveBitpack),
    /// Bit planes of chunks, without zeros, to bytes.
    BitplaneRze(BitplaneRze),
    /// Differences in tiles of 2 or 3 dimensions to values; in one dimension, they are a [`Difference`].
    TiledLorenzo(TiledLorenzo),
    /// The first bytes of the input.
    Prefix(StreamPrefix),
}

/// The inverse of Bitshuffle. Blocks are independent; bytes after the last full block are stored unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Bitshuffle {
    /// Bytes of a block: a positive multiple of 1024 elements, below 2^32.
    pub block: u64,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: u64,
    /// Total bytes of all full blocks.
    pub full: u64,
}

/// How signed integers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignCode {
    /// The sign in the lowest bit.
    Zigzag,
    /// Base -2.
    Negabinary,
}

/// The inverse of Zigzag or Negabinary.
#[derive(Debug, Clone, Copy)]
pub struct SignCoding {
    /// Which of the two.
    pub code: SignCode,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub size: u64,
    /// Bytes of whole elements; zeros follow.
    pub whole: u64,
}

/// The inverse of Bitpack.
#[derive(Debug, Clone, Copy)]
pub struct Bitpack {
    /// Bytes of an element: 1, 2 or 4.
    pub size: u64,
    /// Stored bits per element: a power of two, at most the bits of an element.
    pub nbits: u32,
    /// Decoded bytes of the smallest group of elements that is stored in whole bytes.
    pub block: u64,
    /// Stored bytes of a block.
    pub packed: u64,
}

/// Running sums that restart every `span` elements.
#[derive(Debug, Clone, Copy)]
pub struct RunningSums {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub size: u64,
    /// Whether elements are floats.
    pub float: bool,
    /// Whether elements are integers in negabinary.
    pub negabinary: bool,
    /// At least 1.
    pub span: u64,
}

/// The inverse of Difference, or of Lorenzo of rank 1.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// The sums, per chunk.
    pub sums: RunningSums,
    /// Bytes of whole elements; zeros follow.
    pub whole: u64,
}

/// The inverse of Lorenzo of rank 2 or 3.
#[derive(Debug, Clone, Copy)]
pub struct Lorenzo {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub size: u64,
    /// Elements per dimension, slowest first.
    pub dims: [u64; 3],
}

/// Returns the outliers in a range of positions: the positions, ascending, and the bytes of their values.
pub type FindOutliers = dyn Fn(Range<u64>) -> Result<(Vec<u32>, Vec<u8>)> + Send + Sync;

/// How the codes of `LorenzoQuant` represent signed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Two's complement of the code's width.
    Signed,
    /// Zigzag of the code's width.
    Zigzag,
    /// The code minus this radius (32-byte configurations).
    Biased(u32),
}

/// The inverse of `LorenzoQuant`.
#[derive(Clone)]
pub struct LorenzoQuant {
    /// Bytes of an element: 4 or 8.
    pub real: u64,
    /// Bytes of a code: 1, 2 or 4.
    pub code: u64,
    /// The coding of numbers.
    pub coding: Coding,
    /// Twice the error bound, in the element type.
    pub twice_bound: f64,
    /// Elements of the array per dimension, slowest first.
    pub dims: [u64; 3],
    /// Elements of a tile per dimension.
    pub tile: [u64; 3],
    /// Elements of a brick per dimension, multiples of a tile, if the stream can be read brick by brick.
    pub brick: Option<[u64; 3]>,
    /// The outliers.
    pub outliers: Arc<FindOutliers>,
}

impl fmt::Debug for LorenzoQuant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LorenzoQuant({:?} in {:?})", self.dims, self.brick)
    }
}

/// How the codes of Quantizer become values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule<T> {
    /// Two's complement of the code's width, times this.
    Signed(T),
    /// Zigzag of the code's width, times this.
    Zigzag(T),
    /// As [`Rule::Zigzag`], but codes with upper bits that reach this radius are the bits of the value itself.
    InPlace(T, u32),
    /// Powers of 2, with multiples of this as exponents.
    Relative(f32),
}

/// The inverse of Quantizer.
#[derive(Clone)]
pub struct Quantizer {
    /// Bytes of an element: 4 or 8.
    pub real: u64,
    /// Bytes of a code: 2 or 4.
    pub code: u64,
    /// How codes become values; factors in the element type.
    pub rule: Rule<f64>,
    /// The outliers, if there can be any.
    pub outliers: Option<Arc<FindOutliers>>,
}

impl fmt::Debug for Quantizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantizer({:?})", self.rule)
    }
}

/// Returns the number of runs, and the offset of their lengths, which are all within the input.
pub type FindRuns = dyn Fn() -> Result<(u64, u64)> + Send + Sync;

/// The inverse of RLE.
#[derive(Clone)]
pub struct Rle {
    /// Bytes of an element: 1, 2 or 4.
    pub size: u64,
    /// Number of elements.
    pub count: u64,
    /// The runs.
    pub runs: Arc<FindRuns>,
}

impl fmt::Debug for Rle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rle({} elements)", self.count)
    }
}

/// Returns, for a range of chunks, where each starts in the input and whether it is stored uncompressed; then one more
/// entry for the end of the last.
pub type FindChunks = dyn Fn(Range<u64>) -> Result<Vec<(u64, bool)>> + Send + Sync;

/// The inverse of RZE.
#[derive(Clone)]
pub struct Rze {
    /// The chunks.
    pub chunks: Arc<FindChunks>,
}

impl fmt::Debug for Rze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rze")
    }
}

/// Fails if a partition has bits.
pub type CheckPartitions = dyn Fn() -> Result<()> + Send + Sync;

/// The inverse of Huffman. All sections are within the input.
#[derive(Clone)]
pub struct Huffman {
    /// Bytes of a symbol: 1, 2 or 4.
    pub size: u64,
    /// Number of keys in the book.
    pub bklen: u32,
    /// Symbols per partition, at least 1.
    pub sublen: u32,
    /// Present if the alphabet has one symbol, with a code of no bits; then no partition may have any.
    pub single: Option<Arc<CheckPartitions>>,
    /// Offset of the book.
    pub book: u64,
    /// Offset of the bit count per partition.
    pub par_nbit: u64,
    /// Offset of the first cell index per partition.
    pub par_entry: u64,
    /// Range of the cells.
    pub cells: Range<u64>,
}

impl fmt::Debug for Huffman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Huffman({} keys, {} symbols per partition)", self.bklen, self.sublen)
    }
}

/// Reads a range of a stream.
pub type ReadBytes = dyn Fn(Range<u64>) -> Result<Vec<u8>> + Send + Sync;

/// Returns, for a range of groups, where each starts in the input; then one more entry for the end of the last.
pub type FindGroups = dyn Fn(Range<u64>) -> Result<Vec<u64>> + Send + Sync;

/// The inverse of `AdaptiveBitpack`.
#[derive(Clone)]
pub struct AdaptiveBitpack {
    /// Bytes of an element: 2 or 4.
    pub size: u64,
    /// Elements of a block: 1 to 1024.
    pub block: u64,
    /// Bytes of a block's metadata: 1, or 2 if the first element may be stored apart.
    pub metadata: u64,
    /// Reads a range of the input, which starts with the metadata of all blocks.
    pub read: Arc<ReadBytes>,
    /// The groups of [`AdaptiveBitpack::GROUP`] blocks.
    pub groups: Arc<FindGroups>,
}

impl AdaptiveBitpack {
    /// Blocks of a group.
    pub const GROUP: u64 = 128;
}

impl fmt::Debug for AdaptiveBitpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdaptiveBitpack(blocks of {})", self.block)
    }
}

/// A chunk of `BitplaneRZE`.
#[derive(Debug, Clone)]
pub struct StoredPlanes {
    /// Which groups of the planes are stored.
    pub map: [u8; 32],
    /// The range of the input that has them: a multiple of 4 bytes from the ranges of other chunks.
    pub words: Range<u64>,
}

/// Returns a range of chunks with words within the input.
pub type FindPlanes = dyn Fn(Range<u64>) -> Result<Vec<StoredPlanes>> + Send + Sync;

/// The inverse of `BitplaneRZE`.
#[derive(Clone)]
pub struct BitplaneRze {
    /// The chunks.
    pub chunks: Arc<FindPlanes>,
}

impl BitplaneRze {
    /// Bytes of a decoded chunk; the last may be shorter.
    pub const CHUNK: u64 = 4096;
}

impl fmt::Debug for BitplaneRze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BitplaneRze")
    }
}

/// The inverse of `TiledLorenzo` of rank 2 or 3. Tiles are consecutive; the last ones of a dimension are stored whole.
#[derive(Debug, Clone, Copy)]
pub struct TiledLorenzo {
    /// Bytes of an element: 2 or 4.
    pub size: u64,
    /// Elements of the array per dimension, slowest first.
    pub dims: [u64; 3],
    /// Elements of a tile per dimension, at most 255, and at most 1024 in total.
    pub tile: [u64; 3],
    /// Elements of a brick per dimension, if the stream can be read brick by brick: multiples of a tile, or not less
    /// than the array. Only along one dimension are bricks smaller than the array and larger than a tile.
    pub brick: Option<[u64; 3]>,
}

/// The first bytes of a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamPrefix;
