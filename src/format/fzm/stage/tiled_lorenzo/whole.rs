//! An array that is decoded once for all windows of rows, brick by brick.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{Context, Untiled};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::boxes::{BoxTarget, Sizes};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stream::{Bricks, ByteStream, Derivation, Setup};
use crate::once::Once;

/// The array and its elements in their natural order; bricks do not need these.
pub(super) struct Whole {
    array: Arc<Untiled>,
    cx: Context,
    store: Once<ArrayStore>,
}

impl Whole {
    pub(super) fn new(array: Arc<Untiled>, cx: &Context) -> Self {
        Self { array, cx: cx.clone(), store: Once::new() }
    }

    fn decode(&self) -> Result<ArrayStore> {
        let (shape, size) = (&self.array.shape, to_u64(self.array.size));
        let mut store = ArrayStore::new(self.array.len(), &self.cx.account, "tiled_lorenzo array")?;
        let brick = shape.row_brick(size, Sizes::FAST);
        let [_, ny, nx] = shape.dims;
        let mut bytes = ScratchBuffer::new(to_usize(brick.iter().product::<u64>() * size, "brick")?)?;
        let count: u64 = shape.dims.iter().zip(brick).map(|(n, brick)| n.div_ceil(brick)).product();
        for index in 0..count {
            let (z, y, x, [plane, row]) = shape.read_brick(brick, index, &mut bytes, |mut to| {
                self.array.decode(&mut to)?;
                let BoxTarget { z, y, x, strides, .. } = to;
                Ok((z, y, x, strides))
            })?;
            let len = to_usize((x.end - x.start) * size, "row")?;
            for (i, z) in z.enumerate() {
                for (j, y) in y.clone().enumerate() {
                    let own = to_usize((to_u64(i) * plane + to_u64(j) * row) * size, "row")?;
                    let own = bytes.get(own..).and_then(|rest| rest.get(..len));
                    let own = own.ok_or_else(|| Error::corrupt("a row is outside its brick", "brick"))?;
                    store.write(((z * ny + y) * nx + x.start) * size, own)?;
                }
            }
        }
        Ok(store)
    }
}

impl ByteStream for Whole {
    fn len(&self) -> u64 {
        self.array.len()
    }

    fn unit(&self) -> u64 {
        to_u64(self.array.size)
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let limit = self.cx.build_limit(self.array.len());
        self.store.build(&self.cx.account, limit, || self.decode())?.read(at, dst)
    }

    fn bricks(&self) -> Option<Bricks> {
        self.array.bricks()
    }

    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        self.array.read_brick(index, dst)
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        Arc::clone(&self.array).derivation()
    }
}
