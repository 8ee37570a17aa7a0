//! Descriptors in messages of Unix sockets.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Sends a duplicate of `fd` with one byte.
fn send(socket: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS.into());
    }
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a descriptor; `None` if the message has none or the peer hung up.
///
/// # Errors
/// From recvmsg(2).
pub(super) fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(rights)
}

/// A place in which a descriptor outlives all others of this process.
///
/// When a process ends, the kernel closes its descriptors in an unspecified order. A descriptor in a message that
/// nobody receives is closed with its socket, after those of the process.
#[derive(Debug)]
pub(super) struct Last {
    socket: UnixStream,
    sender: UnixStream,
}

impl Last {
    /// # Errors
    /// Fails if no descriptors are left.
    pub(super) fn new() -> io::Result<Self> {
        let (socket, sender) = UnixStream::pair()?;
        Ok(Self { socket, sender })
    }

    /// Keeps `fd` until the returned descriptor is closed, and a little longer if this process ends.
    pub(super) fn keep(self, fd: OwnedFd) -> OwnedFd {
        // On failure it is closed with the others.
        if send(&self.sender, fd.as_fd()).is_ok() { self.socket.into() } else { fd }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_descriptor_arrives_as_another_one_of_the_same_file() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(&ours, writer.as_fd()).unwrap();
        drop(writer);
        let mut writer = std::fs::File::from(receive(&theirs).unwrap().unwrap());
        io::Write::write_all(&mut writer, b"x").unwrap();
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"x");
        io::Write::write_all(&mut &ours, b"no descriptor").unwrap();
        assert!(receive(&theirs).unwrap().is_none());
        drop(ours);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        assert!(receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn what_is_kept_for_last_is_open_until_its_keeper_is_closed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let keeper = Last::new().unwrap().keep(ours.into());
        theirs.set_nonblocking(true).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(keeper);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }
}
