//! `Cdf97OutlierCorrect` (type 41): the field of the quantized coefficients, and corrections where it is too far off.
//!
//! It has two forward inputs, the field and the codes of its coefficients, and passes the codes on.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{BATCH, fill, passes, whole};
use crate::bytes::to_usize;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::config::{Config, ConfigLayout, Field};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::{Element, Float, elements};
use crate::format::fzm::stage::{Context, DataType, Family, Part, Stage, StageType, exactly};
use crate::format::fzm::stream::ByteStream;

/// Stage type 41.
pub(in crate::format::fzm::stage) const CORRECT: StageType = StageType {
    code: 41,
    name: "cdf97_outlier_correct",
    family: Family::Predictor,
    layout: &LAYOUT,
    parse: Correct::parse,
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[12],
    fields: &[Field::u32("dim_x", 0), Field::u32("dim_y", 4), Field::f32("error_bound", 8)],
};

/// Elements of the longest line that the library transforms.
const LONGEST: u64 = 12288;

/// The configuration.
struct Correct {
    config: Config,
    nx: u64,
    ny: u64,
    bound: f32,
}

impl Correct {
    fn parse(config: Config) -> Result<Box<dyn Stage>> {
        for name in ["dim_x", "dim_y"] {
            match config.u64(name) {
                0 => return Err(config.corrupt(name, "a field without elements")),
                1..=LONGEST => {}
                _ => return Err(config.unknown(name, format!("lines of more than {LONGEST} elements"))),
            }
        }
        let bound = config.f32("error_bound");
        if !bound.is_finite() {
            return Err(config.corrupt("error_bound", format!("{bound} is not a number")));
        }
        let (nx, ny) = (config.u64("dim_x"), config.u64("dim_y"));
        Ok(Box::new(Self { config, nx, ny, bound }))
    }

    /// Bytes of the field, and of its codes.
    fn bytes(&self) -> u64 {
        4 * self.nx * self.ny
    }
}

impl Stage for Correct {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        &["correction", "codes"]
    }

    fn inputs(&self) -> usize {
        2
    }

    fn input_type(&self, input: usize) -> DataType {
        if input == 0 { DataType::F32 } else { DataType::I32 }
    }

    fn output_type(&self, port: usize) -> DataType {
        if port == 0 { DataType::Opaque } else { DataType::I32 }
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("eb {}", self.bound), format!("{} x {}", self.ny, self.nx)]
    }

    fn dims(&self) -> Option<Vec<u64>> {
        Some(vec![self.ny, self.nx])
    }

    fn has_own_length(&self) -> bool {
        true
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [corrections, codes] = exactly(outputs)?;
        let len = self.bytes();
        if codes.len() < len {
            return Err(Error::new(Kind::Truncated { need: len, have: codes.len() }, "codes"));
        }
        let (step, dims) = (2.0 * self.bound, [1, self.ny, self.nx]);
        let front = Part { stream: Arc::clone(&codes), at: 0, len };
        let field = whole(len, 4, cx, move |cx| {
            let mut store = ArrayStore::new(len, &cx.account, "array")?;
            fill(&mut store, |at, own| {
                codes.read(at, own)?;
                for own in own.chunks_exact_mut(4) {
                    (i32::get(own) as f32 * step).put(own);
                }
                Ok(())
            })?;
            let mut field = passes::Field::<f32> { store, dims, space: Vec::new() };
            field.invert(&passes::plane([dims[1], dims[2]]))?;
            correct(&mut field.store, &*corrections)?;
            Ok(field.store)
        });
        Ok(vec![field, Arc::new(front)])
    }
}

/// Adds the corrections: a count, the positions in ascending order, the values.
fn correct(field: &mut ArrayStore, corrections: &dyn ByteStream) -> Result<()> {
    let need = |need| {
        let have = corrections.len();
        if need <= have { Ok(()) } else { Err(Error::new(Kind::Truncated { need, have }, "correction")) }
    };
    need(4)?;
    let mut count = [0; 4];
    corrections.read(0, &mut count)?;
    let count = u64::from(u32::from_le_bytes(count));
    need(4 + 8 * count)?;
    let (mut done, mut next) = (0, 0);
    while done < count {
        let n = (BATCH / 4).min(count - done);
        let bytes = to_usize(4 * n, "correction")?;
        let (mut positions, mut values) = (ScratchBuffer::new(bytes)?, ScratchBuffer::new(bytes)?);
        corrections.read(4 + 4 * done, &mut positions)?;
        corrections.read(4 + 4 * (count + done), &mut values)?;
        for (at, value) in elements::<u32>(&positions).map(u64::from).zip(elements::<f32>(&values)) {
            if 4 * at >= field.len() {
                let why = format!("position {at} is outside the array of {} elements", field.len() / 4);
                return Err(Error::corrupt(why, "correction"));
            }
            if at < next {
                return Err(Error::corrupt(format!("position {at} is not after the one before it"), "correction"));
            }
            next = at + 1;
            let own = field.get_mut(4 * at, 4)?;
            (f32::get(own) + value).canonical().put(own);
        }
        done += n;
    }
    Ok(())
}
