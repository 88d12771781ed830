//! A proxy between one server and Redis, for tests: it loses answers, delivers commands late, and stalls. A fault waits for a command with
//! certain bytes and happens once, so a test decides the order of everything.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The fault of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkFault {
    /// Redis carries the commands out, and the connection ends before the answer.
    DropReply,
    /// The same, and there is no new connection until [`LossyLink::open`].
    Cut,
    /// The connection ends, and Redis gets the commands at [`LossyLink::deliver`].
    Hold,
    /// Redis gets the commands at [`LossyLink::open`].
    StallCommand,
    /// Redis carries the commands out, and the answer comes at [`LossyLink::open`].
    StallReply,
}

/// A connection to Redis on which commands wait.
struct HeldCommands {
    upstream: TcpStream,
    commands: Vec<u8>,
    /// Closed once Redis has answered.
    answered: Receiver<()>,
}

#[derive(Default)]
struct LinkState {
    armed: Option<(LinkFault, Vec<u8>)>,
    /// Whether the fault has happened.
    happened: bool,
    stalled: bool,
    cut: bool,
    held: Vec<HeldCommands>,
}

#[derive(Default)]
struct SharedLink {
    state: Mutex<LinkState>,
    changed: Condvar,
}

pub(super) struct LossyLink {
    port: u16,
    shared: Arc<SharedLink>,
}

impl LossyLink {
    pub(super) fn start(redis: u16) -> LossyLink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, shared) = (listener.local_addr().unwrap().port(), Arc::<SharedLink>::default());
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, shared) = (client.unwrap(), Arc::clone(&of_thread));
                std::thread::spawn(move || shared.serve(client, redis));
            }
        });
        LossyLink { port, shared }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The next commands with these bytes meet this fault.
    pub(super) fn arm(&self, fault: LinkFault, bytes: &[u8]) {
        let mut state = self.shared.state.lock();
        (state.armed, state.happened, state.stalled) = (Some((fault, bytes.to_vec())), false, true);
    }

    /// Takes a fault back that has not happened. Returns whether it has.
    pub(super) fn disarm(&self) -> bool {
        let mut state = self.shared.state.lock();
        state.armed = None;
        std::mem::take(&mut state.happened)
    }

    /// Waits until the fault has happened.
    pub(super) fn wait(&self) {
        self.shared.wait_while(|state| !state.happened);
    }

    pub(super) fn open(&self) {
        let mut state = self.shared.state.lock();
        (state.cut, state.stalled) = (false, false);
        self.shared.changed.notify_all();
    }

    /// Gives Redis the commands of the n-th connection that was held, and waits until it has carried them out. Returns whether there are any.
    pub(super) fn deliver(&self, n: usize) -> bool {
        let mut state = self.shared.state.lock();
        if state.held.is_empty() {
            return false;
        }
        let n = n % state.held.len();
        let HeldCommands { mut upstream, commands, answered } = state.held.swap_remove(n);
        drop(state);
        upstream.write_all(&commands).unwrap();
        upstream.shutdown(Shutdown::Write).unwrap();
        let ended = answered.recv_timeout(Duration::from_secs(10));
        assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "Redis did not answer");
        true
    }
}

impl SharedLink {
    fn wait_while(&self, is_waiting: impl Fn(&LinkState) -> bool) {
        let mut state = self.state.lock();
        while is_waiting(&state) {
            self.changed.wait(&mut state);
        }
    }

    fn happened(&self) {
        self.state.lock().happened = true;
        self.changed.notify_all();
    }

    /// The fault for these commands, if one waits for them.
    fn fault(&self, commands: &[u8]) -> Option<LinkFault> {
        let mut state = self.state.lock();
        let (fault, bytes) = state.armed.as_ref()?;
        let fault = commands.windows(bytes.len()).any(|part| part == bytes).then_some(*fault)?;
        state.armed = None;
        state.cut |= fault == LinkFault::Cut;
        Some(fault)
    }

    /// Passes the commands of one connection on.
    fn serve(self: &Arc<Self>, mut client: TcpStream, redis: u16) {
        self.wait_while(|state| state.cut);
        // The test may be over.
        let Ok(mut upstream) = TcpStream::connect(("127.0.0.1", redis)) else { return };
        upstream.set_nodelay(true).unwrap();
        let (fault_of_reply, faults) = sync_channel(16);
        let (answering, answered) = sync_channel(1);
        let both = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            shared.answer(both, &faults);
            drop(answering);
        });
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let commands = &buffer[..count];
            match self.fault(commands) {
                None => {}
                Some(LinkFault::Hold) => {
                    let commands = commands.to_vec();
                    self.state.lock().held.push(HeldCommands { upstream, commands, answered });
                    self.happened();
                    _ = client.shutdown(Shutdown::Both);
                    return;
                }
                Some(LinkFault::StallCommand) => {
                    self.happened();
                    self.wait_while(|state| state.stalled);
                }
                Some(fault) => fault_of_reply.send(fault).unwrap(),
            }
            if upstream.write_all(commands).is_err() {
                return;
            }
        }
        _ = upstream.shutdown(Shutdown::Write);
    }

    /// Passes the answers of one connection on.
    fn answer(&self, (mut upstream, mut client): (TcpStream, TcpStream), faults: &Receiver<LinkFault>) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = upstream.read(&mut buffer) {
            match faults.try_recv() {
                Ok(LinkFault::StallReply) => {
                    self.happened();
                    self.wait_while(|state| state.stalled);
                }
                Ok(_) => {
                    _ = (client.shutdown(Shutdown::Both), upstream.shutdown(Shutdown::Both));
                    return self.happened();
                }
                Err(_) => {}
            }
            _ = client.write_all(&buffer[..count]);
        }
        _ = client.shutdown(Shutdown::Both);
    }
}
