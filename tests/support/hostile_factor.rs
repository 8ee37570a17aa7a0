//! How many hostile cases are made, for the test binaries that make some: `HOSTILE=10` ten times as many, `HOSTILE=0.1` a
//! tenth.

pub(crate) fn hostile_factor() -> f64 {
    std::env::var("HOSTILE").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1.0)
}
