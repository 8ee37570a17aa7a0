//! Integer Lorenzo (type 12 with a configuration of 16 bytes): differences along every dimension.
//!
//! Reference: section 5.3. Rank 1 is summed in blocks of 256. Ranks 2 and 3 are summed over the whole length of each
//! dimension, so the first read decodes the whole array, once: into memory, or into an unnamed temporary file if memory
//! is short.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::array_store::ArrayStore;
use super::block_windows::{BlockWindows, Blockwise, STEP, scaled};
use super::config::{Config, Field, Layout};
use super::scratch::ScratchBuffer;
use super::types::Unsigned;
use super::{Context, DataType, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::inverse::{self, Inverse, RunningSums};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

/// The stage type.
pub(super) const TYPE: StageType =
    StageType { code: 12, name: "lorenzo", layout: &LAYOUT, parse: |config| Ok(Box::new(Lorenzo::parse(config)?)) };

const LAYOUT: Layout = Layout {
    sizes: &[16],
    fields: &[
        Field::element_type("data_type", 0),
        Field::u8("ndim", 1),
        Field::zero(2, 2),
        Field::u32("dim_x", 4),
        Field::u32("dim_y", 8),
        Field::u32("dim_z", 12),
    ],
};

/// A stage.
struct Lorenzo {
    config: Config,
    ty: DataType,
    ndim: u8,
    /// x, y, z.
    dim: [u32; 3],
}

impl Lorenzo {
    fn parse(config: Config) -> Result<Self> {
        let defined = [DataType::I8, DataType::I16, DataType::I32, DataType::I64];
        let ty = config.element_type("data_type", &defined, DataType::Opaque)?;
        let ndim = config.u8("ndim");
        if ndim > 3 {
            return Err(config.corrupt("ndim", format!("{ndim} dimensions, but at most 3 are allowed")));
        }
        let dim = ["dim_x", "dim_y", "dim_z"].map(|name| config.u32(name));
        Ok(Self { config, ty, ndim, dim })
    }

    /// The dimensions, slowest first; x is 0 if unknown.
    fn dims_zyx(&self) -> [u64; 3] {
        let [dim_x, dim_y, dim_z] = self.dim.map(u64::from);
        let ny = if self.ndim >= 2 { dim_y.max(1) } else { 1 };
        let nz = if self.ndim >= 3 { dim_z.max(1) } else { 1 };
        [nz, ny, dim_x]
    }

    fn stream<U: Unsigned>(&self, input: Arc<dyn ByteStream>, cx: &Context) -> Result<Arc<dyn ByteStream>> {
        let (len, size) = (input.len(), to_u64(U::SIZE));
        let n = len / size;
        let [nz, ny, nx] = self.dims_zyx();
        if nz == 1 && ny == 1 {
            let windows = BlockWindows::new(len, BLOCK * size, scaled(input.unit(), U::SIZE, U::SIZE));
            return Ok(Arc::new(Blocks { input, windows, add: add_blocks::<U>, size }));
        }
        let nx = if nx == 0 { n } else { nx };
        let count = nz.checked_mul(ny).and_then(|rows| rows.checked_mul(nx)).filter(|&count| count <= n);
        if count.is_none() {
            return Err(Error::corrupt(format!("{nx} x {ny} x {nz} elements, but the stream has {n}"), "dim_x"));
        }
        let (cx, store) = (cx.clone(), Once::new());
        Ok(Arc::new(Whole::<U> { input, dims: [nz, ny, nx], cx, store, _element: std::marker::PhantomData }))
    }
}

impl Stage for Lorenzo {
    fn name(&self) -> &'static str {
        "lorenzo"
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
        [self.ty.name().to_owned()].into_iter().chain(dims).collect()
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
        let [input] = exactly(outputs)?;
        let stream = match self.ty.size() {
            1 => self.stream::<u8>(input, cx),
            2 => self.stream::<u16>(input, cx),
            4 => self.stream::<u32>(input, cx),
            _ => self.stream::<u64>(input, cx),
        };
        Ok(vec![stream?])
    }
}

/// Elements per block of rank 1.
const BLOCK: u64 = 256;

/// The array of rank 1.
struct Blocks {
    input: Arc<dyn ByteStream>,
    add: fn(&mut [u8]),
    size: u64,
    windows: BlockWindows,
}

impl Blockwise for Blocks {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        self.input.read(start, out)?;
        (self.add)(out);
        let ragged = out.len() % self.size as usize;
        let whole = out.len() - ragged;
        out[whole..].fill(0);
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let (len, size) = (self.windows.len(), self.size);
        let sums = RunningSums { size, float: false, negabinary: false, span: BLOCK };
        let inverse = Inverse::Difference(inverse::Difference { sums, whole: len - len % size });
        Some(Derivation { inverse, input: Arc::clone(&self.input) })
    }
}

fn add_blocks<U: Unsigned>(bytes: &mut [u8]) {
    for block in bytes.chunks_mut(BLOCK as usize * U::SIZE) {
        let mut sum = U::default();
        for own in block.chunks_exact_mut(U::SIZE) {
            sum = sum.plus(U::get(own));
            sum.put(own);
        }
    }
}

/// The array of rank 2 or 3, followed by zeros up to the length of the input.
struct Whole<U> {
    input: Arc<dyn ByteStream>,
    /// Slowest first.
    dims: [u64; 3],
    cx: Context,
    store: Once<ArrayStore>,
    _element: std::marker::PhantomData<fn() -> U>,
}

/// Bytes that a pass over the array processes at a time.
const BATCH: u64 = 2 * STEP;

impl<U: Unsigned> Whole<U> {
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

impl<U: Unsigned> ByteStream for Whole<U> {
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
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{Memory, Random, inverse, inverse_error, parse_error, round_trip, whole};
    use super::*;
    use crate::account::Account;
    use crate::limits::Limits;

    fn config(ty: u8, ndim: u8, dim: [u32; 3]) -> Vec<u8> {
        let mut config = vec![ty, ndim, 0, 0];
        config.extend(dim.iter().flat_map(|d| d.to_le_bytes()));
        config
    }

    #[test]
    fn rank_1_restarts_every_256_elements() {
        let got = inverse(12, &config(4, 1, [0; 3]), &[&[1; 300]]).unwrap();
        assert_eq!((got[0], got[254], got[255], got[256], got[299]), (1, 255, 0, 1, 44));
        assert_eq!(inverse(12, &config(5, 1, [0; 3]), &[&[1, 1, 1, 1, 9]]).unwrap(), [1, 1, 2, 2, 0]);
    }

    #[test]
    fn rank_2_and_3_add_up_along_each_whole_dimension() {
        assert_eq!(inverse(12, &config(4, 2, [3, 2, 9]), &[&[1; 7]]).unwrap(), [1, 2, 3, 2, 4, 6, 0]);
        assert_eq!(inverse(12, &config(4, 3, [2, 2, 2]), &[&[1; 8]]).unwrap(), [1, 2, 2, 4, 2, 4, 4, 8]);
        assert_eq!(inverse(12, &config(4, 3, [2, 1, 2]), &[&[1; 4]]).unwrap(), [1, 2, 2, 4]);
        assert!(inverse(12, &config(4, 2, [0, 2, 0]), &[&[]]).unwrap().is_empty());
    }

    #[test]
    fn every_type_and_rank_decodes_as_specified() {
        for (text, dtype, shape) in [
            ("lorenzo", Dtype::I8, &[1000][..]),
            ("lorenzo,zigzag,bitpack:bits=16", Dtype::I32, &[5003]),
            ("lorenzo", Dtype::I64, &[1000]),
            ("lorenzo,negabinary,bitshuffle:w=2,rze", Dtype::I16, &[64, 128]),
            ("lorenzo,zigzag,bitshuffle:w=4,rze", Dtype::I32, &[3, 1500]),
            ("lorenzo", Dtype::I8, &[15, 14, 20]),
            ("lorenzo", Dtype::I64, &[20, 30, 40]),
            ("lorenzo", Dtype::I16, &[5000, 2, 3]),
        ] {
            round_trip(text, dtype, shape, &field::smooth(dtype, shape, 3.0, 6));
        }
    }

    #[test]
    fn arrays_over_the_budget_use_a_temporary_file() {
        // Rows and planes shorter and longer than a batch, and a lag between one and two batches.
        for dim in [[7, 5, 11], [40_000, 3, 2], [300, 400, 3], [20_000, 9, 0], [130, 2, 700]] {
            let n = dim.iter().map(|&d| d.max(1) as usize).product::<usize>();
            let bytes = Random(2).bytes(n * 4 + 1);
            let config = config(6, 3, dim);
            let of = |budget: u64| {
                let cx = Context { account: Account::new(budget, 1 << 30), limits: Limits::default(), stored: 0 };
                let input = Arc::new(Memory(bytes.clone()));
                let stage = Lorenzo::parse(Config::of(&LAYOUT, &config).unwrap()).unwrap();
                whole(&*stage.invert(vec![input], &cx).unwrap()[0]).unwrap()
            };
            let [in_memory, in_a_file] = [of(1 << 30), of(0)];
            assert!(in_memory == in_a_file);
            let mut want: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
            let [nx, ny] = [dim[0] as usize, dim[1] as usize];
            for (lag, period) in [(1, nx), (nx, nx * ny), (nx * ny, n)] {
                for i in 0..n {
                    if i % period >= lag {
                        want[i] = want[i].wrapping_add(want[i - lag]);
                    }
                }
            }
            assert!(in_memory[..n * 4] == want.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>(), "{dim:?}");
        }
    }

    #[test]
    fn bad_types_and_dims_are_refused() {
        assert_eq!(parse_error(12, &config(0, 1, [0; 3])), "element type uint8 is unknown (data_type, at byte 0x100)");
        assert_eq!(
            parse_error(12, &config(4, 9, [0; 3])),
            "9 dimensions, but at most 3 are allowed (ndim, at byte 0x101)"
        );
        assert_eq!(
            parse_error(12, &config(4, 1, [0; 3])[..15]),
            "a configuration of 15 bytes is unknown (config_size, at byte 0x100)"
        );
        assert_eq!(parse_error(13, &config(4, 1, [0; 3])), "stage 0 (type 13) is unknown (stage_type)");
        let e = inverse_error(12, &config(4, 2, [3, 2, 0]), &[&[0; 5]]);
        assert_eq!(e, "3 x 2 x 1 elements, but the stream has 5 (dim_x)");
        let e = inverse_error(12, &config(7, 3, [u32::MAX; 3]), &[&[0; 8]]);
        assert!(e.ends_with("elements, but the stream has 1 (dim_x)"), "{e}");
    }
}
