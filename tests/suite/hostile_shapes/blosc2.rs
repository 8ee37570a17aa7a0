//! Shapes of Blosc2 files.

use crate::Shape;

pub(crate) const SHAPES: &[Shape] = &[];
