//! The forms of names, versions and digests that the dialects prescribe.
//!
//! Reference: sections 3 and 6.4.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::Limits;

use super::footer::Dialect;
use super::quoted::quoted;

/// Checks a name of dialect 2.
pub(super) fn name_2(name: &str, what: &'static str) -> Result<()> {
    if name.is_empty() || name.len() > 1024 || name.contains('\0') {
        return Err(Error::corrupt("must be 1 to 1024 bytes without NUL", what));
    }
    Ok(())
}

/// Checks the key of an attribute.
pub(super) fn attribute_name(name: &str, dialect: Dialect) -> Result<()> {
    if dialect == Dialect::V2 {
        return name_2(name, "attribute name");
    }
    Limits::check(to_u64(name.len()), 65535, "attribute name").map(drop)
}

/// Accepts `major[.minor[.patch]]` with major 1.
pub(super) fn version(text: &str) -> Result<()> {
    let number = |p: &str| p.bytes().all(|b| b.is_ascii_digit()).then(|| p.parse().ok()).flatten();
    let numbers: Option<Vec<u64>> = text.split('.').take(4).map(number).collect();
    match numbers.as_deref() {
        Some([1] | [1, _] | [1, _, _]) => Ok(()),
        Some([major, ..]) if *major > 1 => Err(Error::unknown(format!("zTensor version {}", quoted(text)), "version")),
        _ => Err(Error::unsupported(format!("version {}", quoted(text)), "version")),
    }
}

/// Checks the form `algorithm:hex`, in lower case.
pub(super) fn digest_2(text: &str) -> Result<()> {
    let fits = text.split_once(':').is_some_and(|(name, hex)| {
        let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let digits = !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let len = match name {
            "xxh3" => hex.len() == 16,
            "sha256" => hex.len() == 64,
            _ => true,
        };
        named && digits && len
    });
    if fits { Ok(()) } else { Err(Error::corrupt(format!("{} is not a digest", quoted(text)), "digest")) }
}
