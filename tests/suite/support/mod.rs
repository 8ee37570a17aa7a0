//! What several test modules need.

pub(crate) mod made;
pub(crate) mod mounts;
pub(crate) mod opened;
pub(crate) mod oracle;
#[cfg(feature = "remote")]
pub(crate) mod server;
#[cfg(feature = "remote")]
pub(crate) mod services;

/// How many cases a property has that needs `usual` ones: `PROPTEST_CASES` sets the number where 256 are usual.
pub(crate) fn cases(usual: u32) -> u32 {
    (usual * proptest::test_runner::Config::default().cases).div_ceil(256)
}

/// How many changed files are read where `usual` are usual: `HOSTILE` times as many.
pub(crate) fn hostile(usual: usize) -> usize {
    let factor: f64 = std::env::var("HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(1.0);
    (usual as f64 * factor).max(1.0) as usize
}
