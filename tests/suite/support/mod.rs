//! What several test modules need.

pub(crate) mod alone;
#[path = "../../support/hostile_factor.rs"]
mod hostile_factor;
pub(crate) mod made;
pub(crate) mod mounts;
pub(crate) mod opened;
pub(crate) mod oracle;
#[cfg(feature = "remote")]
pub(crate) mod server;
#[cfg(feature = "remote")]
pub(crate) mod services;

/// Files of tests/data that take as long to read as all others together, and have tests of their own.
pub(crate) const SLOW: [&str; 2] = ["huge_tables.b2z", "small_special_chunks.b2frame"];

/// How many cases a property has that needs `usual` ones: `PROPTEST_CASES` sets the number where 256 are usual.
pub(crate) fn cases(usual: u32) -> u32 {
    (usual * proptest::test_runner::Config::default().cases).div_ceil(256)
}

/// How many changed files are read where `usual` are usual: `HOSTILE` times as many.
pub(crate) fn hostile(usual: usize) -> usize {
    (usual as f64 * hostile_factor::hostile_factor()).max(1.0) as usize
}
