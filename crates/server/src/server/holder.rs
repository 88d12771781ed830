//! Finds the process that holds a port, according to /proc. Without the right to inspect other users' processes, it finds none.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, {}", self.pid, self.name)
    }
}

/// The process that listens on the port, if it can be found.
pub fn find_listener(address: SocketAddr) -> Option<Holder> {
    find(Path::new("/proc"), address.port())
}

fn find(proc: &Path, port: u16) -> Option<Holder> {
    let sockets: Vec<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| fs_err::read_to_string(proc.join(table)).ok())
        .flat_map(|table| listening(&table, port).iter().map(|inode| format!("socket:[{inode}]")).collect::<Vec<_>>())
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs_err::read_dir(proc).ok()?.filter_map(Result::ok);
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| holds(&proc.join(pid.to_string()), &sockets))?;
    let name = fs_err::read_to_string(proc.join(pid.to_string()).join("comm")).ok()?;
    Some(Holder { pid, name: name.trim().to_owned() })
}

/// Inodes of the sockets that listen on the port, from a table like /proc/net/tcp.
fn listening(table: &str, port: u16) -> Vec<&str> {
    const LISTEN: &str = "0A";
    let line = |line: &'_ str| -> Option<(u16, bool)> {
        let mut columns = line.split_whitespace();
        let (_, local_port) = columns.nth(1)?.rsplit_once(':')?;
        let state = columns.nth(1)?;
        Some((u16::from_str_radix(local_port, 16).ok()?, state == LISTEN))
    };
    let lines = table.lines().filter(|text| line(text) == Some((port, true)));
    lines.filter_map(|text| text.split_whitespace().nth(9)).collect()
}

fn holds(process: &Path, sockets: &[String]) -> bool {
    let Ok(files) = fs_err::read_dir(process.join("fd")) else { return false };
    let mut targets = files.filter_map(|file| fs_err::read_link(file.ok()?.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000\n   \
        1: 0100007F:1F41 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000\n";

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        assert_eq!(listening(TABLE, 8001), ["4711"]);
        assert_eq!(listening(TABLE, 8000), Vec::<&str>::new());
        assert_eq!(listening("nonsense\n\n", 8001), Vec::<&str>::new());
    }

    #[test]
    fn the_process_that_holds_a_port_is_named() {
        let proc = tempfile::tempdir().expect("a directory");
        let at = |path: &str| proc.path().join(path);
        for directory in ["net", "811/fd", "812/fd"] {
            fs_err::create_dir_all(at(directory)).expect("a directory");
        }
        fs_err::write(at("net/tcp"), TABLE).expect("a file");
        fs_err::write(at("811/comm"), "tritonserver\n").expect("a file");
        std::os::unix::fs::symlink("socket:[4711]", at("811/fd/3")).expect("a link");
        std::os::unix::fs::symlink("socket:[4712]", at("812/fd/3")).expect("a link");
        assert_eq!(find(proc.path(), 8001).expect("a holder").to_string(), "pid 811, tritonserver");
        assert_eq!(find(proc.path(), 8000), None);
    }
}
