//! The memory available to a process on Linux.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory available to this process: the minimum of the machine's memory, the limits of its control groups,
/// and `ulimit -v`. `None` if the system does not say.
pub fn available_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // "max" does not parse: no limit.
    let groups = group_files(&groups).into_iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    let own = fs::read_to_string("/proc/self/limits").ok().and_then(|text| address_space(&text));
    machine.into_iter().chain(groups).chain(own).min()
}

/// The files that may hold a memory limit for a process's control groups and their ancestors; `groups` is the content
/// of `/proc/PID/cgroup`. In a container, that path may be valid only outside of it: then only the topmost of these
/// files exists, and holds the container's own limit.
fn group_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (tops, name): (&[&str], _) = match controllers {
            "" => (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max"),
            _ if controllers.split(',').any(|c| c == "memory") => (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes"),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        files.extend(tops.iter().flat_map(|top| path.ancestors().map(|group| Path::new(top).join(group).join(name))));
    }
    files
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit, if set.
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
    fn memory_limits_of_a_control_group_and_its_ancestors_are_found() {
        let shown = |groups: &str| group_files(groups).iter().map(|f| f.display().to_string()).collect::<Vec<_>>();
        let v2 = shown("0::/user.slice/a:b\n");
        let group = "/sys/fs/cgroup/user.slice";
        assert_eq!(
            v2[..3],
            [format!("{group}/a:b/memory.max"), format!("{group}/memory.max"), "/sys/fs/cgroup/memory.max".into()]
        );
        let v1 = shown("9:cpu,cpuacct:/x\n4:hugetlb,memory:/jobs/7\n1:name=systemd:/memory\n");
        let group = "/sys/fs/cgroup/memory";
        let files = ["/jobs/7", "/jobs", ""].map(|path| format!("{group}{path}/memory.limit_in_bytes"));
        assert_eq!(v1, files);
        assert!(shown("nonsense\n").is_empty());
    }

    #[test]
    fn the_total_is_read_from_meminfo() {
        assert_eq!(mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16384 * 1024));
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
        assert_eq!(mem_total("MemTotal: 99999999999999999999 kB"), None);
        assert!(available_memory().is_some_and(|bytes| bytes > 0));
    }
}
