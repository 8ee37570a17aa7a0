//! Shapes of Zstandard files.

use crate::Shape;

pub(crate) const SHAPES: &[Shape] = &[];
