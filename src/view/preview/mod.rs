//! A picture of an array, as a PNG.
//!
//! Shows as: `preview.png`, and as any slice that is asked for (`drawing`). One dimension is a curve, two are an image,
//! three and more show their middle slice (`plane`). Limits: `BUDGET` bytes are decoded, whatever the size of the
//! array: of a larger one, lines or places at even distances, or the start of a stream that can only be decoded from
//! its start (`plan`). Sides of 1024 pixels. Pieces that are needed again are held meanwhile, so that none is decoded
//! twice whatever the size of the cache; they are charged, so that the cache makes room, and pictures that share an
//! account are made one at a time.
//!
//! Invariant: the size of the file follows from the shape alone (`png_file`), so that nothing is decoded to list it.
#![forbid(unsafe_code)]

mod cells;
mod colours;
mod curve;
mod drawing;
mod element;
mod image;
mod plan;
mod plane;
mod png_file;
mod sample;
mod scale;
mod slice;
mod viridis;

use std::sync::Arc;

use crate::account::Account;
use crate::format::{Array, Content, Fetch, Number};
use crate::{platform, text};

use super::View;
use cells::Cells;
use colours::Colouring;
use plan::PlanePlan;
use plane::Plane;
use png_file::{Picture, Size, Text};
use sample::Elements;

pub use drawing::{Curve, Drawing, curve, picture};

/// Maximum number of bytes that are decoded for a picture.
const BUDGET: u64 = 64 << 20;

/// The picture of `array`, whose elements are at the start of `data`. `None` if it has no elements, or no numbers.
/// Memory to make it is charged to `account`.
pub fn content(array: &Array, data: &Content, account: &Account) -> Option<Content> {
    let elements = Elements::of(array, None)?;
    let (middle, start) = (Plane::middle(array)?, Plane::start(array)?);
    let len = png_file::len(middle.width(), middle.height());
    let all = array.shape.iter().fold(1_u64, |n, &d| n.saturating_mul(d));
    let (array, data, account) = (array.clone(), data.clone(), account.clone());
    let make = move |fetch: &dyn Fetch| {
        let _turn = account.turn()?;
        let _trim = Trim;
        let view = View::new(&data, fetch)?;
        let (plan, plane) = PlanePlan::new(&view, &middle, Some(&start), &account)?;
        let cells = sample::sample(&plan, plane, elements, fetch)?;
        let picture = draw(plane, &cells, &Colouring::default());
        png_file::encode(&picture, &texts(&array, (&plane.shown, all), &cells, &picture), Size::Known)
    };
    Some(Content::Computed { len: Some(len), make: Arc::new(make) })
}

/// Returns the freed memory of a picture to the system, on drop.
struct Trim;

impl Drop for Trim {
    fn drop(&mut self) {
        platform::trim_heap();
    }
}

fn draw(plane: &Plane, cells: &Cells, look: &Colouring) -> Picture {
    if plane.is_curve() { curve::draw(plane, cells, look) } else { image::draw(plane, cells, look) }
}

/// The description of a picture of the elements `shown`, chosen out of `all`.
fn texts(array: &Array, (shown, all): (&str, u64), cells: &Cells, picture: &Picture) -> Vec<Text> {
    let of = match Number::of(&array.descr) {
        Some(number) if number.kind == crate::format::NumberKind::Complex => "magnitudes of ",
        _ => "",
    };
    let dtype = array.descr.trim_matches('\'');
    vec![
        ("Title", format!("{of}{dtype}, shape {}, elements {}", text::shape(&array.shape), shown)),
        ("Minimum", cells.minimum.clone()),
        ("Maximum", cells.maximum.clone()),
        ("Decoded", format!("{} of {all} elements; minimum and maximum are those of the decoded ones", cells.decoded)),
        ("Colours", picture.legend.text.clone()),
        ("Software", "fzmfs".to_owned()),
    ]
}

#[cfg(test)]
mod tests;
