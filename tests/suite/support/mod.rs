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

/// The step through a list of cases that take long: 1 from `PROPTEST_CASES=32` on, so that only `scripts/test quick` skips
/// some.
pub(crate) fn step() -> usize {
    32_u32.div_ceil(proptest::test_runner::Config::default().cases) as usize
}

/// How many changed files are read where `usual` are usual: `HOSTILE` times as many.
pub(crate) fn hostile(usual: usize) -> usize {
    (usual as f64 * hostile_factor::hostile_factor()).max(1.0) as usize
}
