//! `TiledLorenzo` (type 25): differences inside of tiles, which are stored one after the other.
//!
//! Reference: `TiledLorenzo`. Tiles are independent and their places follow from the dimensions, so that a window
//! decodes the tiles that its rows cross. Tiles at the end of a dimension are stored whole. With tall tiles in wide
//! arrays, a window of rows would decode far more than itself: the first one decodes the whole array, once.
#![forbid(unsafe_code)]

mod kernel;
mod whole;

use std::ops::Range;
use std::sync::Arc;

use super::DataType::{I16, I32};
use super::boxes::{BoxTarget, Shape, Sizes};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::account::decode_budget;
use crate::bytes::{to_u64, to_usize};
use crate::codec::simd_dispatch::run_widest;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse, RunningSums};
use crate::format::fzm::stream::{Bricks, ByteStream, Derivation, Setup};
use kernel::{Rows, TileSums, sum_up};
use whole::Whole;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 25,
    name: "tiled_lorenzo",
    family: Family::Predictor,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(TiledLorenzo::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[20],
    fields: &[
        Field::element_type("data_type", 0),
        Field::u8("ndim", 1),
        Field::u8("tile_x", 2),
        Field::u8("tile_y", 3),
        Field::u8("tile_z", 4),
        Field::zero(5, 3),
        Field::u32("dim_x", 8),
        Field::u32("dim_y", 12),
        Field::u32("dim_z", 16),
    ],
};

/// Elements of the largest tile.
const LARGEST: u64 = 1024;

/// The configuration.
struct TiledLorenzo {
    config: Config,
    ty: DataType,
    /// Slowest first. x is 0 if the dimensions are not known: the array is all that is stored.
    dims: [u64; 3],
    /// Slowest first.
    tile: [u64; 3],
}

impl TiledLorenzo {
    fn parse(config: Config) -> Result<Self> {
        let ty = config.element_type("data_type", &[I16, I32], I32)?;
        let rank = config.u8("ndim").max(1);
        if rank > 3 {
            return Err(config.unknown("ndim", format!("{rank} dimensions")));
        }
        let dim = |name, from| if rank >= from { config.u64(name) } else { 1 };
        let nx = config.u64("dim_x");
        let (ny, nz) = if nx == 0 { (1, 1) } else { (dim("dim_y", 2), dim("dim_z", 3)) };
        for (name, n) in [("dim_y", ny), ("dim_z", nz)] {
            if n == 0 {
                return Err(config.corrupt(name, "no elements along a dimension"));
            }
        }
        let tile = match config.u64("tile_x") {
            0 if nz > 1 => [4, 4, 4],
            0 if ny > 1 => [1, 8, 8],
            0 => [1, 1, 64],
            tx => [config.u64("tile_z").max(1), config.u64("tile_y").max(1), tx],
        };
        let elements: u64 = tile.iter().product();
        if elements > LARGEST {
            return Err(config.unknown("tile_x", format!("tiles of {elements} elements")));
        }
        if nx == 0 && tile[..2] != [1, 1] {
            return Err(config.corrupt("dim_x", "tiles of several rows need dimensions"));
        }
        Ok(Self { config, ty, dims: [nz, ny, nx], tile })
    }

    /// The shape, if `n` elements are stored.
    fn shape(&self, n: u64) -> Result<Shape> {
        let [nz, ny, nx] = self.dims;
        let tile = self.tile.iter().product::<u64>();
        let too_large = || Error::new(Kind::TooLarge { value: u64::MAX, limit: n }, "dim_x");
        if nx == 0 {
            // Only the number of tiles is known.
            if !n.is_multiple_of(tile) {
                return Err(Error::corrupt(format!("{n} elements are not whole tiles of {tile}"), "dim_x"));
            }
            return Ok(Shape { dims: [1, 1, n], tile: self.tile });
        }
        let tiles = self.dims.iter().zip(self.tile).map(|(n, tile)| n.div_ceil(tile));
        let padded = tiles.chain([tile]).try_fold(1_u64, u64::checked_mul).ok_or_else(too_large)?;
        if padded > n {
            let why = format!("{nx} x {ny} x {nz} elements in tiles are {padded}, but the stream has {n}");
            return Err(Error::corrupt(why, "dim_x"));
        }
        Ok(Shape { dims: self.dims, tile: self.tile })
    }
}

impl Stage for TiledLorenzo {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        self.ty
    }

    fn summary(&self) -> Vec<String> {
        let text = |dims: &[u64]| dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let skip = self.tile.iter().take_while(|n| **n == 1).count().min(2);
        let tiles = format!("tiles of {} {}", text(&self.tile[skip..]), self.ty.name());
        [tiles].into_iter().chain(self.dims().map(|dims| text(&dims))).collect()
    }

    fn dims(&self) -> Option<Vec<u64>> {
        let [nz, ny, nx] = self.dims;
        match (nz, ny) {
            _ if nx == 0 => None,
            (1, 1) => Some(vec![nx]),
            (1, _) => Some(vec![ny, nx]),
            _ => Some(vec![nz, ny, nx]),
        }
    }

    fn has_own_length(&self) -> bool {
        self.dims[2] != 0
    }

    fn is_overlong(&self) -> bool {
        self.dims[2] == 0
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let size = to_u64(self.ty.size());
        let shape =
            if input.is_empty() { Shape { dims: [1, 1, 0], tile: self.tile } } else { self.shape(input.len() / size)? };
        let sum = if self.ty == I16 { sum_up::<2> } else { sum_up::<4> };
        let array = Untiled { input, shape, brick: shape.brick(size, Sizes::FAST), size: self.ty.size(), sum };
        Ok(vec![if is_wide_and_tall(&shape, size) {
            Arc::new(Whole::new(Arc::new(array), cx))
        } else {
            Arc::new(array)
        }])
    }
}

/// Rows of the largest tile that is decoded for one of them.
const TALL: u64 = 32;
/// Bytes of the largest band that is decoded for a few elements of a row.
const WIDE: u64 = 1 << 20;

/// Whether a few elements of a row cost many times as many, and a band is too large to be decoded for them.
fn is_wide_and_tall(shape: &Shape, size: u64) -> bool {
    let [tz, ty, tx] = shape.tile;
    let [_, ny, nx] = shape.dims;
    let planes = if tz == 1 { ty.saturating_mul(nx) } else { tz.saturating_mul(ny).saturating_mul(nx) };
    tz * ty > TALL && planes.max(tx).saturating_mul(size) > WIDE
}

/// The array in its natural order.
struct Untiled {
    input: Arc<dyn ByteStream>,
    shape: Shape,
    brick: [u64; 3],
    /// Bytes of an element.
    size: usize,
    /// Replaces the differences of whole tiles by their sums.
    sum: fn(TileSums, &[u8]),
}

/// Elements that are summed together, at most; at least four tiles.
const GROUP: usize = 4096;

impl Untiled {
    /// Elements of the array.
    fn count(&self) -> u64 {
        self.shape.dims.iter().product()
    }

    /// Decodes a box: all tiles that it crosses, row of tiles by row of tiles.
    fn decode(&self, to: &mut BoxTarget) -> Result<()> {
        let more = to.rounded(self.shape.tile).saturating_sub(to.count());
        decode_budget::charge(more.saturating_mul(to_u64(self.size)))?;
        let [tz, ty, tx] = self.shape.tile;
        let [_, down, across] = self.shape.grid();
        let xs = to.x.start / tx..to.x.end.div_ceil(tx);
        for z in to.z.start / tz..to.z.end.div_ceil(tz) {
            for y in to.y.start / ty..to.y.end.div_ceil(ty) {
                self.tiles(z, y, &xs, (z * down + y) * across, to)?;
            }
        }
        Ok(())
    }

    /// Decodes the tiles `xs` of row `y` of layer `z`; the row starts with tile number `row`.
    fn tiles(&self, z: u64, y: u64, xs: &Range<u64>, row: u64, to: &mut BoxTarget) -> Result<()> {
        let tile = self.shape.tile.map(|n| n as usize);
        let elements = tile.iter().product::<usize>();
        let most = GROUP / elements;
        let mut sums = [0; GROUP];
        let mut x = xs.start;
        while x < xs.end {
            let count = most.min(to_usize(xs.end - x, "tiles")?);
            let mut stored = ScratchBuffer::new(count * elements * self.size)?;
            self.input.read((row + x) * to_u64(elements * self.size), &mut stored)?;
            let sums = &mut sums[..count * elements];
            (self.sum)(TileSums { tile, sums }, &stored);
            self.place([z, y, x], sums, to)?;
            x += to_u64(count);
        }
        Ok(())
    }

    /// Writes the rows of tiles that follow each other along x from tile `[z, y, x]` into the box.
    fn place(&self, [z, y, x]: [u64; 3], sums: &[i32], to: &mut BoxTarget) -> Result<()> {
        let [tz, ty, tx] = self.shape.tile;
        let elements = (tz * ty * tx) as usize;
        let (z, y, x) = (z * tz, y * ty, x * tx);
        let end = (x + to_u64(sums.len() / elements) * tx).min(to.x.end);
        for (i, z) in (z..to.z.end.min(z + tz)).enumerate() {
            for (j, y) in (y..to.y.end.min(y + ty)).enumerate() {
                let first = x.max(to.x.start);
                let Some(out) = to.part(z, y, first..end, self.size)? else { continue };
                let own = (i as u64 * ty + j as u64) * tx;
                let rows = sums.chunks_exact(elements).map(|tile| &tile[own as usize..][..tx as usize]);
                run_widest(Rows { sums: rows, skip: (first - x) as usize, size: self.size, out });
            }
        }
        Ok(())
    }
}

impl ByteStream for Untiled {
    fn len(&self) -> u64 {
        self.count() * to_u64(self.size)
    }

    fn unit(&self) -> u64 {
        self.shape.unit(to_u64(self.size))
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        self.shape.read(self.brick, self.size, at, dst, &mut |mut to| self.decode(&mut to))
    }

    fn bricks(&self) -> Option<Bricks> {
        self.shape.bricks(self.brick, to_u64(self.size))
    }

    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        self.shape.read_brick(self.brick, index, dst, |mut to| self.decode(&mut to))
    }

    fn setup(&self) -> Setup {
        Setup::None
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let (size, Shape { dims, tile }) = (to_u64(self.size), self.shape);
        let inverse = if let ([1, 1, _], [1, 1, span]) = (dims, tile) {
            let sums = RunningSums { size, float: false, negabinary: false, span };
            Inverse::Difference(inverse::Difference { sums, whole: self.len() })
        } else {
            // Bricks have the rank of the array.
            let from = self.shape.rank_from();
            let brick = std::array::from_fn(|i| if i < from { 1 } else { self.brick[i] });
            let brick = (!self.shape.is_contiguous(self.brick)).then_some(brick);
            Inverse::TiledLorenzo(inverse::TiledLorenzo { size, dims, tile, brick })
        };
        Some(Derivation { inverse, input: Arc::clone(&self.input) })
    }
}

#[cfg(test)]
mod tests;
