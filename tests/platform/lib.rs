//! `src/platform` and nothing else: what the library needs of a system, with its tests.

#[path = "../../src/platform/mod.rs"]
pub mod platform;
