//! The decoders of the library without kernels.

use none as merging;
use none as vectors;

mod none;

include!("decoders.rs");
