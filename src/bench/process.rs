//! CPU time and memory of a process on this machine.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// CPU time of a process and all its threads, including ended ones; `None` if there is no such process.
pub fn cpu(pid: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

/// Bytes of memory that a process has in use.
pub fn resident(pid: u32) -> Option<u64> {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The process that serves at this address, if it is on this machine.
pub fn serving(address: &str) -> Option<u32> {
    let local = |a: &SocketAddr| a.ip().is_loopback() || a.ip().is_unspecified();
    let at = address.to_socket_addrs().ok()?.find(local)?;
    crate::server::holder::find_listener(at).map(|holder| holder.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_and_memory_of_a_process_are_measured() {
        let me = std::process::id();
        let before = cpu(me).expect("this process");
        let mut random = super::super::random::SplitMix64::new(1, 1);
        while cpu(me).expect("this process") < before + Duration::from_millis(5) {
            std::hint::black_box(random.next());
        }
        assert!(resident(me).expect("this process") > 1 << 20);
        assert_eq!(cpu(u32::MAX), None);
    }

    #[test]
    fn a_server_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        assert_eq!(serving(&address), Some(std::process::id()));
    }
}
