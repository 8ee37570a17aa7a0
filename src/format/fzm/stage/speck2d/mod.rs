//! SPECK2D (type 40): integers of a plane as a tree of rectangles with the highest bit in each, and the bits below.
//!
//! Reference: section SPECK2D. The position of a pixel's bits depends on the whole tree, so the first read decodes all
//! pixels, once. Work and memory are proportional to the coded pixels: few of them are kept as a sorted list, so that a
//! short stream can describe a large plane of zeros.
#![forbid(unsafe_code)]

mod bits;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

use super::array_store::ArrayStore;
use super::config::{Config, ConfigLayout, Field};
use super::outliers::Sorted;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stream::{ByteStream, Setup};
use crate::once::Once;
use bits::Bits;
use tree::{Count, Rectangle, Tree, Visit};

/// Stage type 40.
pub(super) const TYPE: StageType =
    StageType { code: 40, name: "speck2d", family: Family::Coder, layout: &LAYOUT, parse: Speck2d::parse };

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[24],
    fields: &[
        Field::u32("dim_x", 0),
        Field::u32("dim_y", 4),
        Field::i32("top_bit", 8),
        Field::hole(12, 4),
        Field::u64("tree_bits", 16),
    ],
};

/// The configuration.
struct Speck2d {
    config: Config,
    nx: u32,
    ny: u32,
    /// The highest bit of any code; `None` if all are 0.
    top: Option<u32>,
    tree_bits: u64,
}

impl Speck2d {
    fn parse(config: Config) -> Result<Box<dyn Stage>> {
        let dim = |name| match config.u32(name) {
            0 => Err(config.corrupt(name, "a plane without elements")),
            n => Ok(n),
        };
        let (nx, ny) = (dim("dim_x")?, dim("dim_y")?);
        if u64::from(nx) * u64::from(ny) >= 1 << 31 {
            return Err(config.unknown("dim_x", format!("a plane of {nx} x {ny} elements")));
        }
        let top = match config.i32("top_bit") {
            -1 => None,
            top @ 0..=31 => Some(top as u32),
            top => return Err(config.corrupt("top_bit", format!("{top} is not a bit of 32"))),
        };
        let tree_bits = config.u64("tree_bits");
        Ok(Box::new(Self { config, nx, ny, top, tree_bits }))
    }
}

impl Stage for Speck2d {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::I32
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("{} x {}", self.ny, self.nx)]
    }

    fn dims(&self) -> Option<Vec<u64>> {
        Some(vec![self.ny.into(), self.nx.into()])
    }

    fn has_own_length(&self) -> bool {
        true
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        if self.top.is_some() && self.tree_bits.div_ceil(8) > input.len() {
            let why = format!("{} bits, but the stream has {} bytes", self.tree_bits, input.len());
            return Err(self.config.corrupt("tree_bits", why));
        }
        let (dims, tree_bits) = ([self.nx, self.ny], self.tree_bits);
        Ok(vec![Arc::new(Plane { input, dims, top: self.top, tree_bits, cx: cx.clone(), codes: Once::new() })])
    }
}

/// The decoded plane.
struct Plane {
    input: Arc<dyn ByteStream>,
    /// Elements along x and y.
    dims: [u32; 2],
    top: Option<u32>,
    tree_bits: u64,
    cx: Context,
    codes: Once<PlaneCodes>,
}

/// The elements of a plane.
enum PlaneCodes {
    /// All of them.
    Array(ArrayStore),
    /// The elements that are not 0.
    List(Sorted<i32>),
}

/// Bytes of an element of the list.
const RECORD: u64 = 8;
/// Elements of the rectangles that are put together before they are written into the array.
const TILE: u64 = 1 << 14;
/// Bytes of the list that are put together before they are written.
const BATCH: usize = 64 << 10;

impl Plane {
    fn elements(&self) -> u64 {
        self.dims.into_iter().map(u64::from).product()
    }

    fn decode(&self, top: u32) -> Result<PlaneCodes> {
        let tree = Tree::new(&*self.input, self.dims, top, self.tree_bits)?;
        let mut count = Count(0);
        tree.walk(&mut count)?;
        let values = Bits::new(&*self.input, self.tree_bits, self.input.len().saturating_mul(8), "section B")?;
        // While it is sorted, a list takes twice its size.
        let (is_list, what) = (count.0 < self.elements() / 4, "speck2d codes");
        let bytes = if is_list { count.0 * RECORD } else { self.elements() * 4 };
        let store = ArrayStore::new(bytes, &self.cx.account, what)?;
        let row = self.dims[0].into();
        let mut codes = Writer { values, store, row, is_list, listed: 0, buffer: Vec::new(), tile: None };
        tree.walk(&mut codes)?;
        codes.flush()?;
        if !is_list {
            return Ok(PlaneCodes::Array(codes.store));
        }
        Ok(PlaneCodes::List(Sorted::sort(codes.store, count.0, &self.cx.account, what)?))
    }
}

/// Reads the codes of pixels and puts them into the array or the list.
struct Writer<'a> {
    values: Bits<'a>,
    store: ArrayStore,
    /// Elements of a row of the plane.
    row: u64,
    is_list: bool,
    /// Bytes of the list in the store.
    listed: u64,
    /// The next records of the list, or the elements of the tile.
    buffer: Vec<u8>,
    /// A rectangle that the walk is in.
    tile: Option<Rectangle>,
}

impl Writer<'_> {
    /// Writes the records in the buffer.
    fn flush(&mut self) -> Result<()> {
        if self.is_list {
            self.store.write(self.listed, &self.buffer)?;
            self.listed += to_u64(self.buffer.len());
            self.buffer.clear();
        }
        Ok(())
    }

    fn place(&self, x: u32, y: u32) -> u64 {
        u64::from(y) * self.row + u64::from(x)
    }
}

impl Visit for Writer<'_> {
    #[inline]
    fn enter(&mut self, node: Rectangle) {
        if self.tile.is_none() && !self.is_list && node.area() <= TILE {
            self.tile = Some(node);
            self.buffer.clear();
            self.buffer.resize(4 * node.area() as usize, 0);
        }
    }

    #[inline]
    fn pixel(&mut self, x: u32, y: u32, onset: u32) -> Result<()> {
        let is_negative = self.values.take(1)? == 1;
        let magnitude = (1 << onset | self.values.take(onset)?) as i32;
        let code = if is_negative { magnitude.wrapping_neg() } else { magnitude }.to_le_bytes();
        let place = self.place(x, y);
        if self.is_list {
            self.buffer.extend((place as u32).to_le_bytes());
            self.buffer.extend(code);
            if self.buffer.len() >= BATCH {
                self.flush()?;
            }
        } else if let Some(tile) = self.tile {
            let at = 4 * to_usize(u64::from(y - tile.y) * u64::from(tile.w) + u64::from(x - tile.x), "section A")?;
            let own = self.buffer.get_mut(at..at + 4);
            own.ok_or_else(|| Error::corrupt("a pixel outside its rectangle", "section A"))?.copy_from_slice(&code);
        } else {
            self.store.write(4 * place, &code)?;
        }
        Ok(())
    }

    #[inline]
    fn leave(&mut self, node: Rectangle) -> Result<()> {
        if self.tile == Some(node) {
            self.tile = None;
            for (y, row) in (node.y..).zip(self.buffer.chunks_exact(4 * node.w as usize)) {
                self.store.write(4 * (u64::from(y) * self.row + u64::from(node.x)), row)?;
            }
        }
        Ok(())
    }
}

impl ByteStream for Plane {
    fn len(&self) -> u64 {
        4 * self.elements()
    }

    fn unit(&self) -> u64 {
        4
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let Some(top) = self.top.filter(|_| !dst.is_empty()) else {
            dst.fill(0);
            return Ok(());
        };
        // Each bit of the stream gives at most one code; codes that do not fit the account are not kept.
        let room = self.cx.account.memory().total().saturating_add(self.cx.account.disk().total());
        let limit = self.cx.build_limit(self.len().min(self.input.len().saturating_mul(8 * RECORD)).min(room));
        match self.codes.build(&self.cx.account, limit, || self.decode(top))? {
            PlaneCodes::Array(array) => array.read(at, dst),
            PlaneCodes::List(list) => {
                dst.fill(0);
                let end = at + to_u64(dst.len());
                list.between(at / 4, end.div_ceil(4), |place, code| {
                    // The window may begin or end inside an element.
                    for (at_byte, byte) in (4 * place..).zip(code.to_le_bytes()) {
                        if let Some(own) = at_byte.checked_sub(at).and_then(|at| dst.get_mut(at as usize)) {
                            *own = byte;
                        }
                    }
                })
            }
        }
    }

    fn setup(&self) -> Setup {
        if self.top.is_some() { Setup::Once } else { Setup::None }
    }

    fn is_whole(&self) -> bool {
        self.top.is_some()
    }
}
