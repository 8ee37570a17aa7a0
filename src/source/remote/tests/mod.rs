//! Tests of objects on a server.
#![forbid(unsafe_code)]
#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "tests")]

mod objects;
mod replies;
