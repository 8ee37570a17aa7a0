//! An object on a server, read by ranges over HTTP or from S3.
//!
//! Only the version found at open is served: every reply is compared with it (`version`). Its beginning and its end are
//! fetched at the same time (`tail`); the rest in spans (`spans`), exactly for readers that jump and ahead of those
//! that go in order (`streams`), and kept within the account, and on disk where the user wants it (`disk`). Failed
//! requests are made again for a limited time (`fetch`).
//!
//! Invariants: no thread runs before the first request; a change, once seen, is permanent.
//!
//! Limits: a change is noticed only when something is fetched; kept bytes of the pinned version are served on.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod address;
mod client;
mod disk;
mod fetch;
mod listed;
mod listing;
mod object;
mod objects;
mod prefix;
mod reply;
mod session;
mod span;
mod spans;
mod stored_name;
mod streams;
mod tail;
#[cfg(test)]
mod testing;
mod version;
mod writes;

pub use listed::ListedObjects;
pub use objects::Objects;
pub use prefix::Prefix;

#[cfg(test)]
mod tests;
