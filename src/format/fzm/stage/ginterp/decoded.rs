//! The decoded array: boxes of it from the tiles that they touch.
#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::TILE;
use super::band::{Anchors, Band};
use super::grids::Grids;
use super::spline::{Dequantize, Real};
use super::tile::{Fill, Tile};
use crate::account::decode_budget;
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::run_widest;
use crate::error::{Error, Result};
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::boxes::{BoxTarget, Shape, Sizes};
use crate::format::fzm::stage::outliers::{Count, Outliers, PortNames};
use crate::format::fzm::stage::types::Unsigned;
use crate::format::fzm::stream::{Bricks, ByteStream, Setup};

/// Number of tiles along x with codes that are read together.
const SPAN: u64 = 32;

/// The decoded array.
pub(super) struct GinterpArray<T, C> {
    codes: Arc<dyn ByteStream>,
    anchors: Arc<dyn ByteStream>,
    outliers: Option<Outliers<T>>,
    rules: Dequantize<T>,
    shape: Shape,
    grids: Grids,
    brick: [u64; 3],
    len: u64,
    code: PhantomData<fn() -> C>,
}

impl<T: Real, C: Unsigned> GinterpArray<T, C> {
    /// An array of `dims`, slowest first, without outliers.
    pub(super) fn new(
        [codes, anchors]: [Arc<dyn ByteStream>; 2],
        rules: Dequantize<T>,
        dims: [u64; 3],
        len: u64,
    ) -> Self {
        let tile = if rules.is_flat { [1, TILE, TILE] } else { [TILE; 3] };
        let shape = Shape { dims, tile };
        let brick = shape.brick(to_u64(T::SIZE), Sizes::SLOW);
        Self { codes, anchors, outliers: None, rules, shape, grids: Grids::new(dims), brick, len, code: PhantomData }
    }

    /// With the first `count` outliers of two ports; the array has `elements`.
    pub(super) fn with_outliers(
        self,
        [values, indices]: [Arc<dyn ByteStream>; 2],
        count: u32,
        elements: u64,
        cx: &Context,
    ) -> Result<Self> {
        if count == 0 {
            return Ok(self);
        }
        let names = PortNames { values: "outlier_vals", indices: "outlier_idxs" };
        let outliers = Outliers::new([values, indices], Count::Config(count.into()), names, elements, cx)?;
        Ok(Self { outliers: Some(outliers), ..self })
    }

    /// Decodes a box within one brick.
    fn decode(&self, mut to: BoxTarget) -> Result<()> {
        let tiles = |axis: &Range<u64>, size: u64| axis.start / size..axis.end.div_ceil(size);
        let [tz, ty, tx] = self.shape.tile;
        let (zs, ys, xs) = (tiles(&to.z, tz), tiles(&to.y, ty), tiles(&to.x, tx));
        let mut tile = Tile::new();
        for (z, y) in zs.flat_map(|z| ys.clone().map(move |y| (z, y))) {
            for x in xs.clone().step_by(SPAN as usize) {
                let count = SPAN.min(xs.end - x);
                decode_budget::charge(count * tz * ty * tx * to_u64(T::SIZE))?;
                let band = Band::new(&self.shape, [z * tz, y * ty, x * tx], count);
                self.band(&band, &mut tile, &mut to)?;
            }
        }
        Ok(())
    }

    /// Decodes the tiles of a band.
    fn band(&self, band: &Band, tile: &mut Tile<T>, to: &mut BoxTarget) -> Result<()> {
        let codes = band.codes::<C>(&*self.codes, &self.grids)?;
        let anchors = band.anchors(&*self.anchors, &self.shape)?;
        let corrections = match &self.outliers {
            Some(outliers) => band.corrections(outliers, &self.shape)?,
            None => Vec::new(),
        };
        for i in 0..band.count {
            tile.extents = band.tile_extents(i);
            codes.put::<T, C>(band, i, tile);
            for &(at, value) in corrections.get(i as usize).map(Vec::as_slice).unwrap_or_default() {
                if let Some(own) = tile.values_mut().get_mut(at) {
                    *own = *own + value;
                }
            }
            set_anchors(&anchors, i as usize, tile);
            run_widest(Fill(&self.rules, tile));
            let [z, y, x] = band.start;
            self.copy(tile, [z, y, x + i * TILE], to)?;
        }
        Ok(())
    }

    /// Copies the elements of a tile, which starts at `start`, that are in the box.
    fn copy(&self, tile: &Tile<T>, start: [u64; 3], to: &mut BoxTarget) -> Result<()> {
        let own = |axis: usize, wanted: &Range<u64>| {
            let end = start[axis] + self.shape.tile[axis];
            wanted.start.max(start[axis])..wanted.end.min(end)
        };
        let (zs, ys, xs) = (own(0, &to.z), own(1, &to.y), own(2, &to.x));
        if xs.is_empty() {
            return Ok(());
        }
        let place = (xs.start - to.x.start) as usize * T::SIZE;
        for (z, y) in zs.flat_map(|z| ys.clone().map(move |y| (z, y))) {
            let at = Tile::<T>::at([z - start[0], y - start[1], xs.start - start[2]].map(|n| n as usize));
            let values = tile.values().get(at..at + (xs.end - xs.start) as usize).unwrap_or_default();
            let Some(row) = to.row(z, y, T::SIZE)? else { continue };
            let row = row.get_mut(place..).ok_or_else(|| Error::corrupt("a tile is outside its row", "window"))?;
            for (own, value) in row.chunks_exact_mut(T::SIZE).zip(values) {
                value.put(own);
            }
        }
        Ok(())
    }
}

/// Puts the anchors of tile `i` of a band in their places.
fn set_anchors<T: Real>(anchors: &Anchors<T>, i: usize, tile: &mut Tile<T>) {
    for ([z, y], row) in anchors {
        for (x, anchor) in [0, TILE as usize].into_iter().zip(row.iter().skip(i)) {
            if let Some(own) = tile.values_mut().get_mut(Tile::<T>::at([*z, *y, x])) {
                *own = *anchor;
            }
        }
    }
}

impl<T: Real, C: Unsigned> ByteStream for GinterpArray<T, C> {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> u64 {
        self.shape.unit(to_u64(T::SIZE))
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        self.shape.read(self.brick, T::SIZE, at, dst, &mut |to| self.decode(to))
    }

    fn bricks(&self) -> Option<Bricks> {
        self.shape.bricks(self.brick, to_u64(T::SIZE))
    }

    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        self.shape.read_brick(self.brick, index, dst, |to| self.decode(to))
    }

    fn setup(&self) -> Setup {
        self.outliers.as_ref().map_or(Setup::None, Outliers::setup)
    }
}
