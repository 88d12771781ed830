//! This machine as the settings see it: its name, and the memory that this process may use. A container's limit counts, not the machine's memory.

use std::path::Path;

use crate::config::server::HostInfo;

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// This machine.
pub(super) fn info() -> HostInfo {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let name = read(Path::new("/proc/sys/kernel/hostname")).map(|n| n.trim().to_owned()).unwrap_or_default();
    HostInfo { name, memory: memory(&read) }
}

/// The machine's memory, or less if a control group of this process may use less.
fn memory(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let number = |path: &Path| read(path)?.trim().parse::<u64>().ok();
    let kib = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    // Within a container the own group is the root, or a path that only the machine can see.
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = Path::new(GROUPS).join(own);
    let ancestors = own.ancestors().take_while(|path| path.starts_with(GROUPS));
    let limits = ancestors.filter_map(|group| number(&group.join("memory.max")));
    // The first version of control groups.
    let old = number(&Path::new(GROUPS).join("memory/memory.limit_in_bytes"));
    kib.map(|kib| kib * 1024).into_iter().chain(limits).chain(old).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let of = |files: &[(&str, &str)]| {
            memory(&|path: &Path| {
                files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
            })
        };
        let machine = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        const MACHINE: u64 = 16 << 20;
        assert_eq!((of(&[]), of(&[machine])), (None, Some(MACHINE)));
        let container = [machine, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "1048576\n")];
        assert_eq!(of(&container), Some(1 << 20));
        assert_eq!(of(&[machine, ("/sys/fs/cgroup/memory.max", "max\n")]), Some(MACHINE));
        let service = ("/proc/self/cgroup", "0::/system.slice/sequor.service\n");
        let (slice, unit) =
            ("/sys/fs/cgroup/system.slice/memory.max", "/sys/fs/cgroup/system.slice/sequor.service/memory.max");
        assert_eq!(of(&[machine, service, (slice, "max\n"), (unit, "4194304\n")]), Some(4 << 20));
        assert_eq!(of(&[machine, service, (slice, "2097152\n"), (unit, "4194304\n")]), Some(2 << 20));
        let old = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n");
        assert_eq!(of(&[machine, old]), Some(3 << 20));
    }
}
