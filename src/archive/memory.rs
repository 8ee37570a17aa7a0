//! How much memory there is, and how much of it decoded bytes may take by default.
#![forbid(unsafe_code)]

use std::fs;

/// The most that is kept by default.
const MOST: u64 = 1 << 30;
/// What is assumed where the system does not say.
const UNKNOWN: u64 = 2 << 30;

/// Bytes of memory that this process may have: the machine's, or its control group's limit, or that of `ulimit -v`,
/// whichever is the least.
pub(crate) fn total() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .into_iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    let own = fs::read_to_string("/proc/self/limits").ok().and_then(|text| address_space(&text));
    machine.into_iter().chain(group).chain(own).min().unwrap_or(UNKNOWN)
}

/// Decoded bytes that are kept by default: an eighth of the memory, at most 1 GiB.
pub(crate) fn default_cache() -> u64 {
    (total() / 8).min(MOST)
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit, where there is one.
fn address_space(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_address_space_is_read() {
        let line =
            |soft: &str| format!("Max data size  1 2 bytes\nMax address space         {soft}   unlimited  bytes\n");
        assert_eq!(address_space(&line("204800000")), Some(204_800_000));
        assert_eq!(address_space(&line("unlimited")), None);
    }

    #[test]
    fn the_total_is_read_from_meminfo() {
        assert_eq!(mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16384 * 1024));
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
        assert_eq!(mem_total("MemTotal: 99999999999999999999 kB"), None);
        assert!(total() > 0 && default_cache() <= MOST);
    }
}
