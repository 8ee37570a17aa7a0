//! The arrays of frames, and the names of their dimensions.
//!
//! A metalayer of one of the names [`DIMENSIONS`], of either kind, whose value is a list of texts names the dimensions:
//! the format has no such names itself.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::Value;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::{Array, ArrayList, Arrays, File, Found, numbered_dimensions};

use super::archive::Member;
use super::entries::LayerValue;
use super::frame::Frame;
use super::frames::OpenFrame;

/// Names of metalayers that programs use for the names of dimensions.
const DIMENSIONS: [&[u8]; 3] = [b"dimension_names", b"_ARRAY_DIMENSIONS", b"dims"];
/// Maximum bytes of such a value.
const LONGEST: u64 = 64 << 10;

/// The names of the dimensions of the array in `frame`. A broken value is as good as none.
fn dimensions(frame: &Frame) -> Option<Vec<String>> {
    let is_one = |name: &[u8]| DIMENSIONS.contains(&name);
    let fixed = frame.metalayers.iter().find(|layer| is_one(&layer.name));
    let value = if let Some(layer) = fixed {
        LayerValue::Stored(Arc::clone(&frame.source), layer.clone())
    } else {
        let layer = frame.vlmetalayers.iter().find(|layer| is_one(&layer.name))?;
        LayerValue::of_chunk(&frame.source, layer, &frame.chunks.item().memory).ok()?
    };
    let json = Some(value).filter(|value| value.len() <= LONGEST)?.json().ok()??;
    let Value::Array(names) = serde_json::from_slice(&json).ok()? else { return None };
    names.into_iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The arrays of a frame, which is `array`, and of those that follow it in the file.
pub(super) fn of_frames(first: &OpenFrame, array: Option<Array>, rest: &[Arc<OpenFrame>]) -> Result<Arc<dyn Arrays>> {
    let rank = array.as_ref().map_or(0, |array| array.shape.len());
    let names = dimensions(first.frame()).unwrap_or_else(|| numbered_dimensions(rank));
    let mut all = vec![(b"data".to_vec(), Some(names), first.decoded().data(array)?)];
    for (frame, number) in rest.iter().zip(1_u64..) {
        let name = format!("frames/{number:06}").into_bytes();
        all.push((name, dimensions(frame.frame()), whole(frame)?));
    }
    Ok(Arc::new(ArrayList::new(all)))
}

/// `data.raw` of a frame, typed as the frame says.
fn whole(frame: &OpenFrame) -> Result<File> {
    frame.decoded().data(Some(frame.decoded().own_array()))
}

/// The arrays of the members of an archive, opened on first use.
pub(super) struct MemberArrays(pub(super) Vec<Arc<Member>>);

impl MemberArrays {
    fn member(&self, index: u64) -> Result<&Arc<Member>> {
        self.0.get(to_usize(index, "member")?).ok_or_else(|| Error::new(Kind::NotFound, "member"))
    }
}

impl Arrays for MemberArrays {
    fn count(&self) -> u64 {
        to_u64(self.0.len())
    }

    fn find(&self, index: u64) -> Result<Found> {
        let member = self.member(index)?;
        let name = member.name().to_vec();
        match member.open_frame() {
            Ok(Some(frame)) => Ok(Found::of(name, dimensions(frame.frame()), &whole(&frame)?)),
            Ok(None) => Ok(Found::Nothing),
            Err(e) if e.is_lasting() => Ok(Found::LeftOut(name, e.to_string().into())),
            Err(e) => Err(e),
        }
    }

    fn file(&self, index: u64) -> Result<File> {
        match self.member(index)?.open_frame()? {
            Some(frame) => whole(&frame),
            None => Err(Error::corrupt("not a frame", "member")),
        }
    }
}
