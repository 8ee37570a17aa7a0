//! `TiledLorenzo` (type 25): differences inside of tiles, which follow each other in the output.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, store};
use crate::spec::{Dims, Params, shape};

#[derive(Debug)]
pub(crate) struct TiledLorenzo {
    dtype: Dtype,
    dims: Dims,
    /// x, y, z.
    tile: [usize; 3],
    /// Whether the configuration leaves the tile to its reader.
    is_default: bool,
}

impl TiledLorenzo {
    pub(crate) fn new(p: &mut Params, input: Dtype, array: &[u32]) -> Result<Self> {
        let dtype = p.dtype("t", input.signed())?;
        if !matches!(dtype, Dtype::I16 | Dtype::I32) {
            return Err(format!("works on i16 and i32, not on {}", dtype.name()));
        }
        let dims = p.dims(array)?;
        let text: String = p.take("tile", String::new())?;
        let [_, y, z] = dims.xyz;
        let tile = match (&text[..], z > 1, y > 1) {
            ("", true, _) => [4, 4, 4],
            ("", _, true) => [8, 8, 1],
            ("", ..) => [64, 1, 1],
            (text, ..) => {
                let mut tile = [1; 3];
                let own = shape(text)?;
                if own.len() > 3 {
                    return Err(format!("tile={text}: at most three dimensions"));
                }
                tile.iter_mut().zip(own.iter().rev()).for_each(|(tile, n)| *tile = *n as usize);
                tile
            }
        };
        if tile.iter().any(|n| !(1..256).contains(n)) || tile.iter().product::<usize>() > 1024 {
            return Err(format!("tile={text}: 1 to 255 each, and at most 1024 elements"));
        }
        if dims.xyz[0] == 0 && tile[1..] != [1, 1] {
            return Err("a tile of several rows needs a shape".into());
        }
        Ok(Self { dtype, dims, tile, is_default: text.is_empty() })
    }

    /// The extents of an array of `n` elements.
    fn extents(&self, n: usize) -> [usize; 3] {
        let [x, y, z] = self.dims.xyz.map(|n| n as usize);
        if x == 0 { [n, 1, 1] } else { [x, y, z] }
    }
}

impl Stage for TiledLorenzo {
    fn kind(&self) -> u16 {
        25
    }

    fn name(&self) -> &'static str {
        "tiled_lorenzo"
    }

    fn output(&self) -> Dtype {
        self.dtype
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let [nx, ny, nz] = self.extents(input.len() / size);
        if nx * ny * nz > input.len() / size {
            return Err(format!("{nx} x {ny} x {nz} are more than the input"));
        }
        let [tx, ty, tz] = self.tile;
        let grid = [nx.div_ceil(tx), ny.div_ceil(ty), nz.div_ceil(tz)];
        let mut out = vec![0; grid.iter().product::<usize>() * tx * ty * tz * size];
        let at = |x: usize, y: usize, z: usize| load(&input[((z * ny + y) * nx + x) * size..], size);
        for (z, y, x) in (0..nz).flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| (z, y, x)))) {
            let before = match (x % tx, y % ty, z % tz) {
                (0, 0, 0) => 0,
                (0, 0, _) => at(x, y, z - 1),
                (0, ..) => at(x, y - 1, z),
                _ => at(x - 1, y, z),
            };
            let tile = (z / tz * grid[1] + y / ty) * grid[0] + x / tx;
            let own = ((tile * tz + z % tz) * ty + y % ty) * tx + x % tx;
            store(&mut out[own * size..], size, at(x, y, z).wrapping_sub(before));
        }
        let tile = if self.is_default { [0, 0, 0] } else { self.tile.map(|n| n as u8) };
        let [x, y, z] = self.dims.xyz;
        let config = Record::default().u8(self.dtype.code()).u8(self.dims.rank);
        let config = config.u8(tile[0]).u8(tile[1]).u8(tile[2]).zeros(3).u32(x).u32(y).u32(z);
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        let size = self.dtype.size();
        let n = input.len() / size;
        let used = self.extents(n).iter().product::<usize>();
        if self.dims.xyz[0] != 0 {
            return lossless(&input[..used * size], ports);
        }
        // The last tile is full: it repeats the last value.
        let tile = self.tile[0];
        let mut out = input[..n * size].to_vec();
        let last = out[out.len().saturating_sub(size)..].to_vec();
        while !(out.len() / size).is_multiple_of(tile) {
            out.extend(&last);
        }
        lossless(out, ports)
    }
}
