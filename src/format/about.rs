//! A container's metadata of an array: the attributes that `data.zarr` and Python show.
//!
//! Limits: [`MOST`] bytes of text and 64 levels for one array; larger values are only in the files that show the
//! metadata itself.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::Result;

/// Maximum bytes of the attributes of an array, as text. In memory a value takes 72 bytes, a byte of text at worst.
pub const MOST: u64 = 256 << 10;
/// Maximum levels of lists and objects in an attribute.
const DEPTH: u32 = 64;

/// Attributes by name, in the order of the container.
pub type Attributes = Map<String, Value>;

/// Makes the attributes of an array on demand: a container may have very many arrays.
#[derive(Clone)]
pub struct About(Arc<dyn Fn() -> Result<Attributes> + Send + Sync>);

impl About {
    /// Attributes that `make` reads from the container.
    pub fn new(make: impl Fn() -> Result<Attributes> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// The attributes that fit within the limits.
    ///
    /// # Errors
    /// Fails if the container is broken there: the missing part may define the meaning of the elements.
    pub fn attributes(&self) -> Result<Attributes> {
        let mut left = TextLeft(MOST);
        let mut fits = |name: &String, value: &Value| {
            let before = left.0;
            let is_small = is_shallow(value, DEPTH) && serde_json::to_writer(&mut left, &(name, value)).is_ok();
            if !is_small {
                left.0 = before;
            }
            is_small
        };
        Ok((self.0)()?.into_iter().filter(|(name, value)| fits(name, value)).collect())
    }
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("About")
    }
}

fn is_shallow(value: &Value, depth: u32) -> bool {
    let Some(below) = depth.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_shallow(item, below)),
        Value::Object(map) => map.values().all(|item| is_shallow(item, below)),
        _ => true,
    }
}

/// Counts down the bytes that may still be written.
struct TextLeft(u64);

impl io::Write for TextLeft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.0.checked_sub(crate::bytes::to_u64(bytes.len()));
        self.0 = left.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A number of a container as JSON, which has no NaN and no infinities: they are the text that Zarr writes for them.
pub fn float(x: f64) -> Value {
    let text = if x.is_nan() {
        "NaN"
    } else if x > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    serde_json::Number::from_f64(x).map_or_else(|| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_that_are_too_large_or_too_deep_are_left_out_and_the_others_stay() {
        let deep = |levels| (0..levels).fold(Value::Null, |inner, _| json!([inner]));
        let about = About::new(move || {
            let mut all = Attributes::new();
            all.insert("large".into(), "x".repeat(1 << 20).into());
            all.insert("deep".into(), deep(64));
            all.insert("as deep as may be".into(), deep(63));
            all.insert("units".into(), "K".into());
            Ok(all)
        });
        let names: Vec<_> = about.attributes().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["as deep as may be", "units"]);
    }

    #[test]
    fn numbers_that_json_lacks_are_text() {
        let all = [1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(float);
        assert_eq!(json!(all), json!([1.5, "NaN", "Infinity", "-Infinity"]));
    }
}
