//! Ten thousand clients that send a byte at a time, more than the server has places for.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::faults::status;
use super::server::Server;
use crate::support::mounts::skip;
use crate::support::opened::data;

const CLIENTS: usize = 10_000;
/// How long they go on.
const TIME: Duration = Duration::from_secs(12);

/// A client that sends a request that never ends, and connects again when it is left.
struct Slow {
    socket: OwnedFd,
    sent: usize,
}

impl Slow {
    fn new(at: SocketAddr) -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        // It is connected later, or waits for its turn.
        let _ = connect(&socket, &at);
        Self { socket, sent: 0 }
    }

    /// Sends a byte; whether it was left.
    fn send(&mut self) -> bool {
        let byte = b"GET / HTTP/1.1\r\nx: ".get(self.sent).unwrap_or(&b'x');
        let sent = send(&self.socket, &[*byte], SendFlags::NOSIGNAL);
        self.sent += sent.unwrap_or(0);
        matches!(sent, Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET))
    }
}

#[test]
fn ten_thousand_slow_clients_keep_no_other_from_its_reply() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < CLIENTS as u64 + 1000) {
        return skip("10,000 slow clients", "a process may not open 11,000 files");
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = Server::start(&data("fzm/lq1d_f32_noa_rle.fzm"), &[]);
    server.get("data.raw");
    let before = status(&server, "VmRSS");
    let at: SocketAddr = server.at.parse().unwrap();
    let start = Instant::now();
    let mut clients: Vec<Slow> = (0..CLIENTS).map(|_| Slow::new(at)).collect();
    let opened = start.elapsed();
    let (mut waits, mut left, mut most) = (Vec::new(), 0, 0);
    while start.elapsed() < TIME {
        for client in &mut clients {
            if client.send() {
                *client = Slow::new(at);
                left += 1;
            }
        }
        let asked = Instant::now();
        assert_eq!(server.get("info.json").status, 200);
        waits.push(asked.elapsed());
        most = most.max(status(&server, "VmRSS").saturating_sub(before));
    }
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!(
        "{CLIENTS} slow clients, connected in {opened:?}, {left} left and back; another one was answered {} times, after \
         {median:?} (median) to {longest:?}; {most} KiB more",
        waits.len(),
    );
    assert!(left > 0, "nobody has made room");
    // The largest header of each connection, and its task.
    assert!(most <= 192 << 10, "{most} KiB");
    drop(clients);
    assert_eq!(server.get("info.json").status, 200);
}
