//! Finds the process that uses a file, for messages to an operator.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The process that has locked a file: `pid 26356 (sequor)`, or `another process` if /proc does not say which.
pub(super) fn user_of(path: &Path) -> String {
    found(path).unwrap_or_else(|| "another process".to_owned())
}

fn found(path: &Path) -> Option<String> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let pid = locker(&std::fs::read_to_string("/proc/locks").ok()?, inode)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("pid {pid} ({})", name.trim()))
}

/// The process that has a lock on this inode, from a table like /proc/locks. The kernel gives 0 or less for one that it may not name.
fn locker(table: &str, inode: u64) -> Option<u32> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(4);
        let (pid, file) = (words.next()?, words.next()?);
        let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
        pid.parse().ok().filter(|pid| is_it && *pid > 0)
    };
    table.lines().filter(|line| !line.contains("->")).find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_locks_a_file_is_found_in_the_table_of_locks() {
        let table = "1: POSIX  ADVISORY  WRITE 812 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 26356 fe:00:1311 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:1400 0 EOF\n3: FLOCK  ADVISORY  WRITE -1 fe:00:88 0 EOF\n";
        assert_eq!(
            [1311, 77, 88, 1400, 5].map(|inode| locker(table, inode)),
            [Some(26356), Some(812), None, None, None]
        );
    }
}
