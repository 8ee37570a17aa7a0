//! `ROIBinSplit` (type 35): boxes around peaks at full resolution, and a binned background.
//!
//! Reference: section `ROIBinSplit`. An element is that of its bin, unless it is in a box; of several boxes, the last
//! one in the order of the peaks counts. The first read sorts the peaks by frame and row, once; a window then finds its
//! own.
#![forbid(unsafe_code)]

mod peaks;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;
use peaks::{BoxPart, Peaks};

/// Stage type 35.
pub(super) const TYPE: StageType =
    StageType { code: 35, name: "roibin_split", family: Family::Shuffler, layout: &LAYOUT, parse: RoibinSplit::parse };

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[22],
    fields: &[
        Field::u32("dim_x", 0),
        Field::u32("dim_y", 4),
        Field::u32("dim_z", 8),
        Field::u32("num_peaks", 12),
        Field::u16("half_size", 16),
        Field::u16("bin_size", 18),
        Field::element_type("type", 20),
        Field::zero(21, 1),
    ],
};

/// The configuration.
struct RoibinSplit {
    config: Config,
    ty: DataType,
    shape: FieldShape,
}

/// The extents of a field and of its parts.
#[derive(Debug, Clone, Copy)]
struct FieldShape {
    nx: u64,
    ny: u64,
    nz: u64,
    peaks: u64,
    /// Elements of a box on each side of its peak.
    half: u64,
    bin: u64,
}

impl FieldShape {
    /// Elements along a side of a box.
    fn side(&self) -> u64 {
        2 * self.half + 1
    }

    /// Elements of the background along x.
    fn across(&self) -> u64 {
        self.nx.div_ceil(self.bin)
    }

    /// Elements of the field, of the boxes and of the background, if they are less than 2^60.
    fn elements(&self) -> Option<[u64; 3]> {
        let product = |factors: [u64; 3]| {
            let n = factors.into_iter().map(u128::from).product::<u128>();
            u64::try_from(n).ok().filter(|&n| n < 1 << 60)
        };
        Some([
            product([self.nx, self.ny, self.nz])?,
            product([self.peaks, self.side(), self.side()])?,
            product([self.across(), self.ny.div_ceil(self.bin), self.nz])?,
        ])
    }
}

impl RoibinSplit {
    fn parse(config: Config) -> Result<Box<dyn Stage>> {
        let ty = config.element_type("type", &[DataType::F32, DataType::F64], DataType::F32)?;
        for name in ["dim_x", "dim_y", "dim_z", "bin_size"] {
            if config.u64(name) == 0 {
                return Err(config.corrupt(name, "must not be 0"));
            }
        }
        let shape = FieldShape {
            nx: config.u64("dim_x"),
            ny: config.u64("dim_y"),
            nz: config.u64("dim_z"),
            peaks: config.u64("num_peaks"),
            half: config.u64("half_size"),
            bin: config.u64("bin_size"),
        };
        Ok(Box::new(Self { config, ty, shape }))
    }
}

impl Stage for RoibinSplit {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        &["roi", "bg", "peaks"]
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, port: usize) -> DataType {
        if port < 2 { self.ty } else { DataType::U8 }
    }

    fn summary(&self) -> Vec<String> {
        let FieldShape { nx, ny, nz, peaks, bin, .. } = self.shape;
        let side = self.shape.side();
        vec![
            format!("{nz} x {ny} x {nx}"),
            format!("{peaks} boxes of {side} x {side}"),
            format!("bins of {bin} x {bin}"),
        ]
    }

    fn dims(&self) -> Option<Vec<u64>> {
        let FieldShape { nx, ny, nz, .. } = self.shape;
        Some(if nz == 1 { vec![ny, nx] } else { vec![nz, ny, nx] })
    }

    fn has_own_length(&self) -> bool {
        true
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [boxes, background, peaks] = exactly(outputs)?;
        let size = to_u64(self.ty.size());
        let Some([field, in_boxes, in_background]) = self.shape.elements() else {
            return Err(self.config.corrupt("dim_x", "more than 2^60 elements"));
        };
        for (stream, need, what) in [
            (&boxes, in_boxes * size, "roi"),
            (&background, in_background * size, "bg"),
            (&peaks, self.shape.peaks * peaks::STORED, "peaks"),
        ] {
            if stream.len() < need {
                return Err(Error::new(Kind::Truncated { need, have: stream.len() }, what));
            }
        }
        Ok(vec![Arc::new(Joined {
            boxes,
            background,
            stored: peaks,
            shape: self.shape,
            size,
            cx: cx.clone(),
            peaks: Once::new(),
            windows: BlockWindows::new(field * size, size, 1),
        })])
    }
}

/// The field.
struct Joined {
    boxes: Arc<dyn ByteStream>,
    background: Arc<dyn ByteStream>,
    stored: Arc<dyn ByteStream>,
    shape: FieldShape,
    /// Bytes of an element.
    size: u64,
    cx: Context,
    peaks: Once<Peaks>,
    windows: BlockWindows,
}

/// A part of a row of the field.
#[derive(Debug, Clone, Copy)]
struct Row {
    z: u64,
    y: u64,
    /// Elements along x.
    from: u64,
    to: u64,
}

impl Joined {
    /// The rows of elements `range`, in order.
    fn rows(&self, range: Range<u64>) -> impl Iterator<Item = Row> {
        let (nx, ny) = (self.shape.nx, self.shape.ny);
        let (first, last) = (range.start / nx, (range.end - 1) / nx);
        (first..=last).map(move |row| {
            let from = range.start.saturating_sub(row * nx);
            Row { z: row / ny, y: row % ny, from, to: (range.end - row * nx).min(nx) }
        })
    }

    /// Fills `out` with the background of elements `range`.
    fn fill(&self, range: Range<u64>, out: &mut [u8]) -> Result<()> {
        let FieldShape { bin, ny, .. } = self.shape;
        if bin == 1 {
            return self.background.read(range.start * self.size, out);
        }
        let (size, bin_size) = (to_usize(self.size, "bg")?, to_usize(bin, "bin_size")?);
        let mut rest = out;
        let mut before: Option<Row> = None;
        let mut bins = ScratchBuffer::new(0)?;
        for row in self.rows(range) {
            let bytes = to_usize((row.to - row.from) * self.size, "bg")?;
            let (first, last) = (row.from / bin, (row.to - 1) / bin);
            // Rows of the same bins are equal where they overlap, but only whole rows are read once.
            let same = before.is_some_and(|other| {
                [other.z, other.y / bin, other.from, other.to] == [row.z, row.y / bin, row.from, row.to]
            });
            if !same {
                bins = ScratchBuffer::new(to_usize((last + 1 - first) * self.size, "bg")?)?;
                let line = row.z * ny.div_ceil(bin) + row.y / bin;
                self.background.read((line * self.shape.across() + first) * self.size, &mut bins)?;
            }
            let (own, tail) = std::mem::take(&mut rest).split_at_mut(bytes);
            // The first bin may begin before the row's part.
            let skip = to_usize(row.from - first * bin, "bg")?;
            spread(&bins, size, bin_size, skip, own);
            (rest, before) = (tail, Some(row));
        }
        Ok(())
    }

    fn peaks(&self) -> Result<&Peaks> {
        let limit = self.cx.build_limit(self.shape.peaks * peaks::STORED);
        self.peaks.build(&self.cx.account, limit, || Peaks::sort(&*self.stored, &self.shape, &self.cx.account))
    }

    /// Copies the boxes over elements `range`, which are in `out`.
    fn copy_boxes(&self, range: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let found = self.peaks()?.near(self.rows(range.clone()), &self.shape)?;
        for BoxPart { index, row, x } in found {
            let FieldShape { nx, ny, half, .. } = self.shape;
            let at = ((row.z * ny + row.y) * nx).max(range.start) - range.start;
            let own = out.get_mut(to_usize(at * self.size, "roi")?..).unwrap_or_default();
            let own = own.get_mut(..to_usize((row.to - row.from) * self.size, "roi")?).unwrap_or_default();
            let line = (index.number * self.shape.side() + index.line) * self.shape.side();
            // Columns of the box inside the field. The encoder clamps the others to the field's last column, in order:
            // the last one wins.
            let (first, end) = (x.saturating_sub(half).max(row.from), (x + half + 1).min(nx).min(row.to));
            if first < end {
                let column = first + half - x;
                let place = to_usize((first - row.from) * self.size, "roi")?;
                let bytes = to_usize((end - first) * self.size, "roi")?;
                if let Some(own) = own.get_mut(place..place + bytes) {
                    self.boxes.read((line + column) * self.size, own)?;
                }
            }
            if x + half >= nx && row.to == nx {
                let place = own.len().saturating_sub(to_usize(self.size, "roi")?);
                self.boxes.read((line + 2 * half) * self.size, own.get_mut(place..).unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

/// Repeats each of the elements of `size` bytes in `bins` `bin` times, without the first `skip` of all of these.
fn spread(bins: &[u8], size: usize, bin: usize, skip: usize, out: &mut [u8]) {
    let (mut rest, mut skip) = (out, skip);
    for value in bins.chunks_exact(size) {
        let n = (bin - skip).saturating_mul(size).min(rest.len());
        let (own, tail) = rest.split_at_mut(n);
        own.chunks_exact_mut(size).for_each(|own| own.copy_from_slice(value));
        (rest, skip) = (tail, 0);
    }
}

impl Blockwise for Joined {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let first = start / self.size;
        let range = first..first + to_u64(out.len()) / self.size;
        self.fill(range.clone(), out)?;
        if self.shape.peaks > 0 { self.copy_boxes(&range, out) } else { Ok(()) }
    }

    fn setup(&self) -> Setup {
        if self.shape.peaks > 0 { Setup::Once } else { Setup::None }
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}
