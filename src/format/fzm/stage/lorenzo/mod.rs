//! Integer Lorenzo (type 12 with a configuration below 32 bytes): differences along every dimension.
//!
//! Reference: section 5.3. Rank 1 is summed in blocks of 256 elements, or of the number in a configuration of 20 bytes,
//! which can also ask for differences of second order and a mean for each block. Ranks 2 and 3 are summed over the
//! whole length of each dimension, so the first read decodes the whole array, once: into memory, or into an unnamed
//! temporary file if memory is short.
#![forbid(unsafe_code)]

mod blocks;

use std::sync::Arc;

use super::array_store::ArrayStore;
use super::block_windows::STEP;
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::Unsigned;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;
use blocks::{BlockSums, Blocks, Summed};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 12,
    name: "lorenzo",
    family: Family::Predictor,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Lorenzo::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[16, 20],
    fields: &[
        Field::element_type("data_type", 0),
        Field::u8("ndim", 1),
        Field::zero(2, 2).until(16),
        Field::boolean("centering", 2).since(20),
        Field::u8("order", 3).since(20),
        Field::u32("dim_x", 4),
        Field::u32("dim_y", 8),
        Field::u32("dim_z", 12),
        Field::u32("block_size", 16),
    ],
};

/// A stage.
struct Lorenzo {
    config: Config,
    ty: DataType,
    ndim: u8,
    /// x, y, z.
    dim: [u32; 3],
    /// The blocks, if the array is summed in blocks for any rank.
    blocks: Option<BlockSums>,
}

/// Elements of a block at most.
const LARGEST: u32 = 1024;

impl Lorenzo {
    fn parse(config: Config) -> Result<Self> {
        let defined = [DataType::I8, DataType::I16, DataType::I32, DataType::I64];
        let ty = config.element_type("data_type", &defined, DataType::Opaque)?;
        let ndim = config.u8("ndim");
        if ndim > 3 {
            return Err(config.corrupt("ndim", format!("{ndim} dimensions, but at most 3 are allowed")));
        }
        let dim = ["dim_x", "dim_y", "dim_z"].map(|name| config.u32(name));
        let blocks = Self::blocks(&config)?;
        Ok(Self { config, ty, ndim, dim, blocks })
    }

    fn blocks(config: &Config) -> Result<Option<BlockSums>> {
        let (size, order, centering) = (config.u32("block_size"), config.u8("order"), config.flag("centering"));
        if order > 2 {
            return Err(config.unknown("order", format!("differences of order {order}")));
        }
        if size > LARGEST {
            return Err(config.corrupt("block_size", format!("blocks of {size} elements, but at most {LARGEST}")));
        }
        if size == 0 && (order == 2 || centering) {
            return Err(config.corrupt("block_size", "means and differences of order 2 need blocks"));
        }
        Ok((size > 0).then_some(BlockSums { span: size as usize, twice: order == 2, centering }))
    }

    /// The dimensions, slowest first; x is 0 if unknown.
    fn dims_zyx(&self) -> [u64; 3] {
        let [dim_x, dim_y, dim_z] = self.dim.map(u64::from);
        let ny = if self.ndim >= 2 { dim_y.max(1) } else { 1 };
        let nz = if self.ndim >= 3 { dim_z.max(1) } else { 1 };
        [nz, ny, dim_x]
    }

    fn stream<U: Summed>(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Arc<dyn ByteStream>> {
        if let Some(sums) = self.blocks.filter(|sums| sums.centering) {
            let [input, means] = exactly(outputs)?;
            return Ok(Arc::new(Blocks::<U>::new(input, Some(means), sums)?));
        }
        let [input] = exactly(outputs)?;
        let n = input.len() / to_u64(U::SIZE);
        let [nz, ny, nx] = self.dims_zyx();
        let line = (nz == 1 && ny == 1).then_some(BlockSums { span: BLOCK, twice: false, centering: false });
        if let Some(sums) = self.blocks.or(line) {
            return Ok(Arc::new(Blocks::<U>::new(input, None, sums)?));
        }
        let nx = if nx == 0 { n } else { nx };
        let count = nz.checked_mul(ny).and_then(|rows| rows.checked_mul(nx)).filter(|&count| count <= n);
        if count.is_none() {
            return Err(Error::corrupt(format!("{nx} x {ny} x {nz} elements, but the stream has {n}"), "dim_x"));
        }
        let (cx, store) = (cx.clone(), Once::new());
        Ok(Arc::new(SummedArray::<U> { input, dims: [nz, ny, nx], cx, store, _element: std::marker::PhantomData }))
    }
}

impl Stage for Lorenzo {
    fn ports(&self) -> &[&'static str] {
        if self.config.flag("centering") { &["output", "means"] } else { &["output"] }
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        self.ty
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        let dims = self.dims().map(|dims| dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x "));
        let blocks = self.blocks.map(|sums| format!("blocks of {}", sums.span));
        let order = self.blocks.filter(|sums| sums.twice).map(|_| "order 2".to_owned());
        [self.ty.name().to_owned()].into_iter().chain(dims).chain(blocks).chain(order).collect()
    }

    fn dims(&self) -> Option<Vec<u64>> {
        let [nz, ny, nx] = self.dims_zyx();
        match (nz, ny) {
            _ if nx == 0 => None,
            (1, 1) => Some(vec![nx]),
            (1, _) => Some(vec![ny, nx]),
            _ => Some(vec![nz, ny, nx]),
        }
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let stream = match self.ty.size() {
            1 => self.stream::<u8>(outputs, cx),
            2 => self.stream::<u16>(outputs, cx),
            4 => self.stream::<u32>(outputs, cx),
            _ => self.stream::<u64>(outputs, cx),
        };
        Ok(vec![stream?])
    }
}

/// Elements per block of rank 1, if the configuration does not say.
const BLOCK: usize = 256;

/// The array of rank 2 or 3, followed by zeros up to the length of the input.
struct SummedArray<U> {
    input: Arc<dyn ByteStream>,
    /// Slowest first.
    dims: [u64; 3],
    cx: Context,
    store: Once<ArrayStore>,
    _element: std::marker::PhantomData<fn() -> U>,
}

/// Bytes that a pass over the array processes at a time.
const BATCH: u64 = 2 * STEP;

impl<U: Unsigned> SummedArray<U> {
    /// Bytes of the array; at most the length of the input.
    fn bytes(&self) -> u64 {
        self.dims.iter().product::<u64>() * to_u64(U::SIZE)
    }

    /// Sums along x while writing into a store, then along y and z in the store.
    fn decode(&self) -> Result<ArrayStore> {
        let [nz, ny, nx] = self.dims;
        let mut store = ArrayStore::new(self.bytes(), &self.cx.account, "array")?;
        if store.len() == 0 {
            return Ok(store);
        }
        let row = nx * to_u64(U::SIZE);
        scan_axis::<U>(&mut store, to_u64(U::SIZE), row, |_, at, own| self.input.read(at, own))?;
        if ny > 1 {
            scan_axis::<U>(&mut store, row, ny * row, ArrayStore::read)?;
        }
        if nz > 1 {
            scan_axis::<U>(&mut store, ny * row, nz * ny * row, ArrayStore::read)?;
        }
        Ok(store)
    }
}

/// Adds to each element the one `lag` bytes before it, except in the first `lag` bytes of every `period`. It works
/// front to back, so the added value is already a sum. Elements come from `get`.
fn scan_axis<U: Unsigned>(
    store: &mut ArrayStore,
    lag: u64,
    period: u64,
    get: impl Fn(&ArrayStore, u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let batch = if period <= BATCH { BATCH / period * period } else { BATCH };
    let mut at = 0;
    while at < store.len() {
        // Whole periods, or a part of one.
        let start = at - at % period;
        let end = (at + batch).min(if period <= BATCH { store.len() } else { start + period });
        let n = to_usize(end - at, "array")?;
        // The earlier sums that the batch builds on, at most `lag` bytes.
        let from = at.saturating_sub(lag).max(start);
        let to = end.saturating_sub(lag).clamp(from, at);
        let before = to_usize(to - from, "array")?;
        let mut bytes = ScratchBuffer::new(before + n)?;
        store.read(from, &mut bytes[..before])?;
        get(store, at, &mut bytes[before..])?;
        if period <= BATCH {
            bytes.chunks_mut(period as usize).for_each(|period| add_lagged::<U>(period, lag as usize));
        } else if to == at {
            add_lagged::<U>(&mut bytes, lag as usize);
        } else {
            // The lag is longer than the batch.
            let (sums, own) = bytes.split_at_mut(before);
            let first = to_usize((from + lag).saturating_sub(at), "array")?;
            // In the first `lag` bytes of a period there are no sums.
            if !sums.is_empty() {
                let own = own.get_mut(first..).filter(|own| own.len() == sums.len());
                add::<U>(own.ok_or_else(|| Error::corrupt("sums that belong to no element", "array"))?, sums);
            }
        }
        store.write(at, &bytes[before..])?;
        at = end;
    }
    Ok(())
}

/// Adds to each element from `lag` the one `lag` bytes before it.
fn add_lagged<U: Unsigned>(bytes: &mut [u8], lag: usize) {
    for start in (lag..bytes.len()).step_by(lag) {
        let (sums, own) = bytes.split_at_mut(start);
        let n = own.len().min(lag);
        add::<U>(&mut own[..n], &sums[start - lag..]);
    }
}

fn add<U: Unsigned>(own: &mut [u8], more: &[u8]) {
    for (own, more) in own.chunks_exact_mut(U::SIZE).zip(more.chunks_exact(U::SIZE)) {
        U::get(own).plus(U::get(more)).put(own);
    }
}

impl<U: Unsigned> ByteStream for SummedArray<U> {
    fn len(&self) -> u64 {
        self.input.len()
    }

    fn unit(&self) -> u64 {
        to_u64(U::SIZE)
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let store = self.store.build(&self.cx.account, self.cx.build_limit(self.bytes()), || self.decode())?;
        let inside = to_u64(dst.len()).min(store.len().saturating_sub(at));
        let (array, padding) = dst.split_at_mut(inside as usize);
        padding.fill(0);
        if array.is_empty() { Ok(()) } else { store.read(at, array) }
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let inverse = Inverse::Lorenzo(inverse::Lorenzo { size: to_u64(U::SIZE), dims: self.dims });
        Some(Derivation { inverse, input: Arc::clone(&self.input) })
    }
}

#[cfg(test)]
mod tests;
