//! Tests idle connections at a server that may open only a few files.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::server::{Call, get, models, until};

/// Maximum number of files of the server, and number of connections.
const FILES: u32 = 300;
const IDLE: usize = 290;

#[test]
fn idle_connections_leave_room_for_operators_and_health() {
    let call = Call::serve(models()).arguments(["--connections-per-peer=64"]);
    let server = call.limited(FILES).start();
    let admin = server.admin.unwrap();
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(server.grpc).unwrap()).collect();
    // Connections beyond the limit are closed.
    idle.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let is_closed = |mut stream: &TcpStream| matches!(stream.read(&mut [0]), Ok(0));
    until("those beyond the limit are closed", || idle.iter().filter(|stream| is_closed(stream)).count() >= IDLE - 64);
    let begun = Instant::now();
    assert_eq!(get(admin, "/livez").0, 403, "a host that is no name of this machine");
    assert_eq!(get(server.metrics, "/metrics").0, 200);
    println!("operators and metrics answered in {:?} beside {IDLE} idle connections", begun.elapsed());
    drop(idle);
    let begun = Instant::now();
    while TcpStream::connect(server.http).and_then(|mut s| answers(&mut s)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(180), "no connection of a client is served again");
    }
    let ended = server.stop();
    assert!(ended.stderr.contains("connections.max is lowered"), "{}", ended.stderr);
}

#[test]
fn a_server_that_may_open_too_few_files_does_not_start_and_says_how_many_it_needs() {
    let ended = Call::serve(models()).limited(120).end();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let figures = ["this process may open 120 files (ulimit -n), and needs at least ", "connections.max = 8192 needs"];
    assert!(figures.iter().all(|figure| ended.stderr.contains(figure)), "{}", ended.stderr);
    // With the number that it names, the server starts.
    let (_, after) = ended.stderr.split_once("needs at least ").unwrap();
    let least = after.split_once(':').unwrap().0.parse().unwrap();
    assert!(least > 120, "{least}");
    let server = Call::serve(models()).limited(least).start();
    assert_eq!(get(server.metrics, "/metrics").0, 200);
    let one_less = Call::serve(models()).limited(least - 1).end();
    assert_eq!(one_less.code, Some(3), "{}", one_less.stderr);
}

/// Whether a client gets an answer on this connection.
fn answers(stream: &mut TcpStream) -> std::io::Result<()> {
    use std::io::Write;
    stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"HTTP/1.1 200");
    Ok(())
}
