//! `TiledLorenzo` of rank 2 or 3: one thread block for several tiles.
//!
//! Reference: `TiledLorenzo`. Tiles are independent, and the tiles of a window are consecutive: whole layers or rows of
//! tiles, or bricks.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::TiledLorenzo;
use crate::gpu::{Arg, Kernel, Memory};

/// Elements and tiles that a thread block has space for.
const SPACE: u64 = 2048;
const TILES: u64 = 256;

impl TiledLorenzo {
    /// Elements per dimension of the granule of a window: a brick, or all rows or planes of a row or layer of tiles.
    fn part(&self) -> [u64; 3] {
        let ([nz, ny, nx], [tz, ty, _]) = (self.dims, self.tile);
        self.brick.unwrap_or(if nz > 1 { [tz, ny, nx] } else { [1, ty, nx] })
    }

    /// The first tile of part `index`.
    fn tile(&self, index: u64) -> u64 {
        let ([bz, by, bx], [nz, ny, nx], [tz, ty, tx]) = (self.part(), self.dims, self.tile);
        let (down, across) = (ny.div_ceil(by), nx.div_ceil(bx));
        let (z, y, x) = (index / across / down, index / across % down, index % across);
        let (tiles_down, tiles_across) = (ny.div_ceil(ty), nx.div_ceil(tx));
        if z >= nz.div_ceil(bz) {
            return nz.div_ceil(tz) * tiles_down * tiles_across;
        }
        (z * tiles_down + y * by.div_ceil(ty)) * tiles_across + x * bx.div_ceil(tx)
    }

    /// The tiles of a window.
    fn tiles(&self, window: &Range<u64>) -> Range<u64> {
        let bytes = self.block();
        self.tile(window.start / bytes)..self.tile(window.end.div_ceil(bytes))
    }
}

impl DeviceOp for TiledLorenzo {
    fn block(&self) -> u64 {
        self.part().iter().fold(self.size, |bytes, &n| bytes.saturating_mul(n.max(1)))
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        let (tiles, bytes) = (self.tiles(window), self.tile.iter().product::<u64>() * self.size);
        Ok(tiles.start * bytes..tiles.end * bytes)
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let (tiles, first) = (self.tiles(&window), window.start / self.size);
        let out = job.span(window)?;
        if self.brick.is_some() {
            // No tile fills the positions outside of the array.
            job.clear(&out, 0)?;
        }
        let ([nz, ny, nx], [bz, by, bx]) = (self.dims.map(Arg::U64), self.part().map(Arg::U64));
        let [tz, ty, tx] = self.tile.map(|n| Arg::U32(n as u32));
        let [count, number, first] = [tiles.end - tiles.start, tiles.start, first].map(Arg::U64);
        let name = if self.size == 2 { "tiled_lorenzo_2" } else { "tiled_lorenzo_4" };
        let args = [input.arg(), out.arg(), count, number, first, nx, ny, nz, tx, ty, tz, bx, by, bz];
        let each = (SPACE / self.tile.iter().product::<u64>()).min(TILES);
        let grid = (tiles.end - tiles.start).div_ceil(each);
        job.launch(Kernel { file: "tiled_lorenzo", name }, grid, 256, &args)?;
        Ok(out)
    }
}
