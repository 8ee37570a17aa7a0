//! CDF97 (type 39) and `Cdf97OutlierCorrect` (type 41): the wavelet transform of SPERR.
//!
//! Reference: sections CDF97 and `Cdf97OutlierCorrect`. Every value depends on all levels of the transform, so the first
//! read decodes the whole array, once: into memory, or into an unnamed temporary file if memory is short.
#![forbid(unsafe_code)]

mod correct;
mod lifting;
mod passes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::array_store::ArrayStore;
use super::config::{Config, ConfigLayout, Field};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::Result;
use crate::format::fzm::stream::{ByteStream, Setup};
use crate::once::Once;

pub(super) use correct::CORRECT;
use lifting::Sample;

/// Stage type 39.
pub(super) const TYPE: StageType =
    StageType { code: 39, name: "cdf97", family: Family::Predictor, layout: &LAYOUT, parse: Cdf97::parse };

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[16],
    fields: &[
        Field::element_type("type", 0),
        Field::u8("ndim", 1),
        Field::zero(2, 2),
        Field::u32("dim_x", 4),
        Field::u32("dim_y", 8),
        Field::u32("dim_z", 12),
    ],
};

/// Bytes of the longest line that the library transforms.
const LONGEST: u64 = 49152;

/// The configuration.
struct Cdf97 {
    config: Config,
    ty: DataType,
    /// Slowest first.
    dims: [u64; 3],
}

impl Cdf97 {
    fn parse(config: Config) -> Result<Box<dyn Stage>> {
        let ty = config.element_type("type", &[DataType::F32, DataType::F64], DataType::F32)?;
        let ndim = config.u64("ndim");
        let dim = |name, rank| if ndim >= rank || rank == 1 { config.u64(name) } else { 1 };
        let dims = [dim("dim_z", 3), dim("dim_y", 2), dim("dim_x", 1)];
        let longest = LONGEST / to_u64(ty.size());
        for (name, n) in ["dim_z", "dim_y", "dim_x"].into_iter().zip(dims) {
            if n > longest {
                return Err(config.unknown(name, format!("lines of more than {longest} elements")));
            }
        }
        Ok(Box::new(Self { config, ty, dims }))
    }

    fn stream<T: Sample>(&self, input: Arc<dyn ByteStream>, cx: &Context) -> Arc<dyn ByteStream> {
        let (dims, passes, len) = (self.dims, passes::of(self.dims), input.len());
        let unit = to_u64(T::SIZE);
        whole(len, unit, cx, move |cx| {
            let mut store = ArrayStore::new(len, &cx.account, "array")?;
            fill(&mut store, |at, own| input.read(at, own))?;
            let mut field = passes::Field::<T> { store, dims, space: Vec::new() };
            field.invert(&passes)?;
            Ok(field.store)
        })
    }
}

impl Stage for Cdf97 {
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
        let dims: Vec<String> = self.dims().into_iter().flatten().map(|n| n.to_string()).collect();
        vec![self.ty.name().to_owned(), dims.join(" x ")]
    }

    fn dims(&self) -> Option<Vec<u64>> {
        Some(match self.dims {
            [1, 1, nx] => vec![nx],
            [1, ny, nx] => vec![ny, nx],
            dims => dims.to_vec(),
        })
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        // Below 2^46: every extent has a limit.
        let [nz, ny, nx] = self.dims;
        let bytes = nz * ny * nx * to_u64(self.ty.size());
        if !input.is_empty() && input.len() != bytes {
            let why = format!("{nx} x {ny} x {nz} elements are {bytes} bytes, the stream has {}", input.len());
            return Err(self.config.corrupt("dim_x", why));
        }
        Ok(vec![match self.ty {
            DataType::F32 => self.stream::<f32>(input, cx),
            _ => self.stream::<f64>(input, cx),
        }])
    }
}

/// Bytes that are read at a time.
const BATCH: u64 = 64 << 10;

/// Fills `store` from its start by calls of `get` with an offset and some bytes.
fn fill(store: &mut ArrayStore, get: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < store.len() {
        let n = BATCH.min(store.len() - at);
        get(at, store.get_mut(at, to_usize(n, "array")?)?)?;
        at += n;
    }
    Ok(())
}

/// A stream of `len` bytes that `decode` makes, once.
fn whole(
    len: u64,
    unit: u64,
    cx: &Context,
    decode: impl Fn(&Context) -> Result<ArrayStore> + Send + Sync + 'static,
) -> Arc<dyn ByteStream> {
    Arc::new(WholeArray { len, unit, cx: cx.clone(), decode: Box::new(decode), store: Once::new() })
}

/// Makes an array.
type MakeArray = dyn Fn(&Context) -> Result<ArrayStore> + Send + Sync;

/// An array that is decoded whole by the first read.
struct WholeArray {
    len: u64,
    /// Bytes of an element.
    unit: u64,
    cx: Context,
    decode: Box<MakeArray>,
    store: Once<ArrayStore>,
}

impl ByteStream for WholeArray {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> u64 {
        self.unit
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let limit = self.cx.build_limit(self.len);
        self.store.build(&self.cx.account, limit, || (self.decode)(&self.cx))?.read(at, dst)
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn is_whole(&self) -> bool {
        true
    }
}
