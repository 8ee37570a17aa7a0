//! Shapes of zTensor files.

use crate::Shape;

pub(crate) const SHAPES: &[Shape] = &[];
