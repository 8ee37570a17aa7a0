//! Any slice of an array, drawn in a chosen size, range and colour map; and the numbers of a curve.
//!
//! Of an array made of blocks, the blocks of the slice are decoded and no others; the limits are those of the preview.
#![forbid(unsafe_code)]

use crate::account::Account;
use crate::error::{Error, Kind, Result};
use crate::format::{Array, Content, Fetch};

use super::cells::Cells;
use super::colours::{ColourMap, Colouring};
use super::plan::PlanePlan;
use super::plane::{Plane, SIDE};
use super::png_file::{self, Size};
use super::sample::Elements;
use super::slice::Slice;
use super::{Trim, View, draw, sample, texts};

/// The smallest side of a picture.
const LEAST: u64 = 16;

/// The part of an array to draw, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawing {
    /// The elements as an index of NumPy, without steps: `12,:,:`. Empty for those that the preview shows.
    pub slice: String,
    /// Most pixels of a side; most points of a curve.
    pub size: Option<u64>,
    /// The values of the first and the last colour; by default percentiles 1 and 99 of the picture.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The name of the colour map; empty for viridis.
    pub colours: String,
    /// The name of the element type in the container, if NumPy has none.
    pub type_name: Option<String>,
}

/// The numbers of a curve. Where there are more elements than points, a point stands for several of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The elements as an index of NumPy.
    pub shown: String,
    /// The number of elements.
    pub elements: u64,
    /// Of them, those that were decoded.
    pub decoded: u64,
    /// The smallest and the largest element of each point; NaN if there is none that is a number.
    pub low: Vec<f64>,
    pub high: Vec<f64>,
    /// Of all decoded elements, with all their digits.
    pub minimum: String,
    pub maximum: String,
}

/// The PNG of `drawing` of `array`, whose elements are at the start of `data`: an image of two dimensions, a curve of one.
///
/// # Errors
/// [`Kind::Usage`] if there is no such picture; [`Kind::TooLarge`] if too much had to be decoded for it; otherwise as
/// [`View::read`].
pub fn picture(
    array: &Array,
    data: &Content,
    drawing: &Drawing,
    account: &Account,
    fetch: &dyn Fetch,
) -> Result<Vec<u8>> {
    let look = Colouring { low: drawing.low, high: drawing.high, map: ColourMap::named(&drawing.colours)? };
    if look.is_empty() {
        return Err(usage("the smallest value is not less than the largest"));
    }
    let slice = Slice::parse(&drawing.slice, array)?;
    if slice.spans() == 0 {
        return Err(usage("a picture has one or two dimensions, such as :"));
    }
    let _turn = account.turn()?;
    let _trim = Trim;
    let (plane, cells) = cells(array, data, &slice, drawing, (account, fetch))?;
    let picture = draw(&plane, &cells, &look);
    let mut texts = texts(array, (&slice.to_string(), plane.rows.saturating_mul(plane.columns)), &cells, &picture);
    texts.push(picture.legend.key.clone());
    png_file::encode(&picture, &texts, Size::Small)
}

/// The numbers of `drawing`, which has one dimension or is one element; otherwise as [`picture`].
///
/// # Errors
/// As [`picture`].
pub fn curve(array: &Array, data: &Content, drawing: &Drawing, account: &Account, fetch: &dyn Fetch) -> Result<Curve> {
    let slice = Slice::parse(&drawing.slice, array)?;
    if slice.spans() > 1 {
        return Err(usage("numbers have at most one dimension"));
    }
    let _turn = account.turn()?;
    let _trim = Trim;
    let (plane, cells) = cells(array, data, &slice, drawing, (account, fetch))?;
    let Cells { low, high, minimum, maximum, decoded, .. } = cells;
    Ok(Curve { shown: slice.to_string(), elements: plane.columns, decoded, low, high, minimum, maximum })
}

/// The cells of a slice.
fn cells(
    array: &Array,
    data: &Content,
    slice: &Slice,
    drawing: &Drawing,
    (account, fetch): (&Account, &dyn Fetch),
) -> Result<(Plane, Cells)> {
    let Some(elements) = Elements::of(array, drawing.type_name.as_deref()) else {
        return Err(usage(format!("elements of the type {} are not numbers", array.descr.trim_matches('\''))));
    };
    let side = drawing.size.unwrap_or(SIDE);
    if !(LEAST..=SIDE).contains(&side) {
        return Err(usage(format!("a side has {LEAST} to {SIDE} pixels")));
    }
    let cut = slice.cut(array, data, 0)?;
    let (array, data, slice) = cut.as_ref().map_or((array, data, slice), |(array, data, slice)| (array, data, slice));
    let plane = Plane::of(array, slice, side);
    let plane = plane.ok_or_else(|| usage("a picture has one or two dimensions, and elements"))?;
    let view = View::new(data, fetch)?;
    let (plan, _) = PlanePlan::new(&view, &plane, None, account)?;
    let cells = sample::sample(&plan, &plane, elements, fetch)?;
    drop(plan);
    Ok((plane, cells))
}

fn usage(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Usage(why.into()), "slice")
}
