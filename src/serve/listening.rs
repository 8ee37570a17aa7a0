//! The socket that connections come to: a new one, or one that systemd has opened (`sd_listen_fds(3)`), at which clients
//! can connect before the server runs, and while it is started again.
#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use crate::platform::is_listening;
use crate::platform::net::listen;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The socket that systemd has passed, or else one that listens at `at`. Called before there are other threads.
///
/// # Errors
/// If the address cannot be used, or what was passed is not one socket of TCP that listens.
pub fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let mut passed = ListenFd::from_env();
    let listener = match passed.len() {
        0 => {
            let listener = TcpListener::bind(at)?;
            listen(&listener, BACKLOG)?;
            listener
        }
        1 => passed_listener(&mut passed)?,
        n => return Err(io::Error::other(format!("systemd has passed {n} sockets, not one"))),
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn passed_listener(passed: &mut ListenFd) -> io::Result<TcpListener> {
    let why = |e| io::Error::other(format!("the socket of systemd is none of TCP: {e}"));
    let listener = passed.take_tcp_listener(0).map_err(why)?;
    listener
        .filter(is_listening)
        .ok_or_else(|| io::Error::other("the socket of systemd does not listen; its unit has Accept=yes"))
}
