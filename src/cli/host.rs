//! The facts about this machine that settings depend on: its name, and the memory that this process may use. A container's limit counts,
//! not only the machine's memory.

use std::path::Path;

use crate::config::server::{HostInfo, HostMemory};

/// The root of version 2 control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// The root of the memory controller of version 1 control groups.
const OLD_GROUPS: &str = "/sys/fs/cgroup/memory";

/// Collects the facts about this machine.
pub(super) fn info() -> HostInfo {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let name = read(Path::new("/proc/sys/kernel/hostname")).map(|n| n.trim().to_owned()).unwrap_or_default();
    HostInfo { name, memory: memory(&read) }
}

/// The smallest of the machine's memory and the limits of this process's control groups.
fn memory(read: &dyn Fn(&Path) -> Option<String>) -> Option<HostMemory> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(HostMemory { bytes: kib.saturating_mul(1024), source: "MemTotal of /proc/meminfo".to_owned() })
    });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let of_memory = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        controllers.split(',').any(|controller| controller == "memory").then(|| path.to_owned())
    };
    let old = groups.lines().find_map(of_memory).unwrap_or_default();
    let new_limits = limits(read, GROUPS, own, "memory.max");
    let old_limits = limits(read, OLD_GROUPS, &old, "memory.limit_in_bytes");
    machine.into_iter().chain(new_limits).chain(old_limits).min_by_key(|memory| memory.bytes)
}

/// The limits of a group and of its ancestors. Within a container, the path of the own group is the root, or a path that only the machine
/// can resolve.
fn limits(read: &dyn Fn(&Path) -> Option<String>, root: &'static str, own: &str, file: &str) -> Vec<HostMemory> {
    let group = if own.is_empty() { Path::new(root).to_owned() } else { Path::new(root).join(own) };
    let ancestors = group.ancestors().take_while(|path| path.starts_with(root));
    let limit = |group: &Path| {
        let bytes = read(&group.join(file))?.trim().parse().ok()?;
        Some(HostMemory { bytes, source: format!("{file} of {}", group.display()) })
    };
    ancestors.filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        const MACHINE: u64 = 16 << 20;
        let of = |files: &[(&str, &str)]| {
            let found = memory(&|path: &Path| {
                files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
            });
            found.map(|HostMemory { bytes, source }| (bytes, source))
        };
        let from = |bytes: u64, source: &str| Some((bytes, source.to_owned()));
        let of_machine = from(MACHINE, "MemTotal of /proc/meminfo");
        let machine = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        assert_eq!((of(&[]), of(&[machine])), (None, of_machine.clone()));
        let container = [machine, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "1048576\n")];
        assert_eq!(of(&container), from(1 << 20, "memory.max of /sys/fs/cgroup"));
        assert_eq!(of(&[machine, ("/sys/fs/cgroup/memory.max", "max\n")]), of_machine);
        let parent = |file: &str| file.trim_end_matches("/memory.max").to_owned();
        let service = ("/proc/self/cgroup", "0::/system.slice/sequor.service\n");
        let (slice, unit) =
            ("/sys/fs/cgroup/system.slice/memory.max", "/sys/fs/cgroup/system.slice/sequor.service/memory.max");
        assert_eq!(
            of(&[machine, service, (slice, "max\n"), (unit, "4194304\n")]),
            from(4 << 20, &format!("memory.max of {}", parent(unit)))
        );
        assert_eq!(
            of(&[machine, service, (slice, "2097152\n"), (unit, "4194304\n")]),
            from(2 << 20, &format!("memory.max of {}", parent(slice)))
        );
        let old = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n");
        let of_old = "memory.limit_in_bytes of /sys/fs/cgroup/memory";
        assert_eq!(of(&[machine, old]), from(3 << 20, of_old));
        // The control group of a service in version 1, next to a version 2 group without a limit.
        let groups =
            ("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/system.slice/sequor.service\n1:name=systemd:/y\n0::/\n");
        let unlimited = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let limited = ("/sys/fs/cgroup/memory/system.slice/sequor.service/memory.limit_in_bytes", "2097152\n");
        assert_eq!(
            of(&[machine, groups, unlimited, limited]),
            from(2 << 20, &format!("{of_old}/system.slice/sequor.service"))
        );
    }
}
