//! The counters of a mount, as an extended attribute of its root.
//!
//! An attribute, not a file: the tree shows the container and nothing else, the same as `ls`, `cat` and `extract` show,
//! with fixed sizes and contents. It is not listed, only returned by name: programs that copy or compare all attributes
//! find the same ones each time.
#![forbid(unsafe_code)]

use std::ffi::CStr;

use serde_json::json;

use super::activity::Activity;
use crate::cache::Cache;

/// The attribute: an object in JSON, on one line.
pub(super) const NAME: &CStr = c"user.fzmfs.stats";

/// The value is padded to this length, since a program asks for the length first, and the counters may get longer until
/// it asks for the value.
const LENGTH: usize = 512;

/// The value of the attribute. `has_changed`: the source, so that it is no longer served.
pub(super) fn value(activity: &Activity, cache: &Cache, decoder: &str, has_changed: bool) -> Vec<u8> {
    let stats = cache.stats();
    let counters = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "requests": activity.requests(),
        "open_files": activity.open_files(),
        "cache_bytes": stats.held.saturating_add(stats.beside),
        "cache_limit": cache.budget(),
        "hits": stats.hits,
        "misses": stats.misses,
        "decodes": stats.decodes,
        "decoded_bytes": stats.decoded_bytes,
        "decoder": decoder,
        "changed": has_changed,
    });
    format!("{:<LENGTH$}\n", counters.to_string()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_json_of_the_same_length_whatever_it_counts() {
        let (activity, cache) = (Activity::default(), Cache::new(u64::MAX, 1));
        let before = value(&activity, &cache, "CPU", true);
        (0..1000).for_each(|_| activity.request());
        let after =
            value(&activity, &cache, "a processor with a long name: 18446744073709551615 bytes; CPU: 7 bytes", false);
        assert_eq!(before.len(), after.len());
        let read: serde_json::Value = serde_json::from_slice(&after).unwrap();
        assert_eq!((read["requests"].as_u64(), read["cache_limit"].as_u64()), (Some(1000), Some(u64::MAX)));
    }
}
