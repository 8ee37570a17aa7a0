//! The mount: fuser's calls translated into questions to the tree, and the daemon around them.
//!
//! The event loops never decode: they look up, answer what is cached, and hand the rest to workers.

mod failure;
mod request;

pub use failure::Failure;
pub use request::{Access, MountRequest, Owner};
