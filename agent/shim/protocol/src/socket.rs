//! One message, with file descriptors: `sendmsg` and `recvmsg` on a `SOCK_SEQPACKET` socket.
//!
//! Blocking or not is the socket's business: `EAGAIN` comes back as `WouldBlock`. Nothing is buffered here.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use nix::{
    cmsg_space,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recv, recvmsg, sendmsg},
};
use serde::{Serialize, de::DeserializeOwned};

/// Longest message. The kernel's default send buffer (208 KiB) must hold it.
pub const MAX_MESSAGE_BYTES: usize = 160 * 1024;

/// Most descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 4;

/// Encodes and sends one message.
///
/// # Errors
/// `InvalidInput` when it is too long; `WouldBlock` when the receiver is slow and the socket non-blocking;
/// `BrokenPipe` when there is none.
pub fn send<T: Serialize>(socket: BorrowedFd<'_>, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_bytes(socket, &encode(message)?, descriptors)
}

/// Encodes one message.
///
/// # Errors
/// `InvalidInput` when it is too long.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "message too long"));
    }
    Ok(bytes)
}

/// Sends an encoded message.
///
/// # Errors
/// As [`send`].
pub fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &rights[..0] } else { &rights[..] };
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one message; `None` when the other end has gone. `buffer` is scratch space, kept by the caller to be reused.
///
/// # Errors
/// `WouldBlock` when there is none and the socket is non-blocking; `InvalidData` when it is not a `T` or was cut off.
pub fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    // Asked first: a buffer for the longest message would be most of a shim's memory.
    let waiting = recv(socket.as_raw_fd(), &mut [], MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)?;
    if waiting > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    buffer.resize(waiting.max(1), 0);
    let mut control = cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut descriptors = Vec::new();
    let (length, truncated) = {
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
        for item in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = item {
                descriptors.extend(raw.into_iter().map(own));
            }
        }
        (message.bytes, message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC))
    };
    if truncated {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message cut off"));
    }
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&buffer[..length])?, descriptors)))
}

#[allow(unsafe_code, reason = "the kernel has just made these descriptors for us")]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: received by SCM_RIGHTS in this very call, so open and owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
