//! One message, with file descriptors: `sendmsg` and `recvmsg` on a `SOCK_SEQPACKET` socket.
//!
//! Blocking or not is the socket's business: `EAGAIN` comes back as `WouldBlock`. Nothing is
//! buffered here.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// Longest message. The kernel's default send buffer (208 KiB) must hold it.
pub const MAX_MESSAGE_BYTES: usize = 160 * 1024;

/// Most descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 4;

/// Room for as many.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

/// Encodes and sends one message.
///
/// # Errors
/// `InvalidInput` when it is too long; `WouldBlock` when the receiver is slow and the socket
/// non-blocking; `BrokenPipe` when there is none.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_bytes(socket, &encode(message)?, descriptors)
}

/// Encodes one message.
///
/// # Errors
/// `InvalidInput` when it is too long.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "message too long",
        ));
    }
    Ok(bytes)
}

/// Sends an encoded message.
///
/// # Errors
/// As [`send`].
pub fn send_bytes(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors",
        ));
    }
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives one message; `None` when the other end has gone. `buffer` is scratch space, kept by the
/// caller to be reused.
///
/// # Errors
/// `WouldBlock` when there is none and the socket is non-blocking; `InvalidData` when it is not a
/// `T` or was cut off.
pub fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    // Asked first: a buffer for the longest message would be most of a shim's memory.
    let (_, waiting) = recv(socket, &mut [0; 0], RecvFlags::PEEK | RecvFlags::TRUNC)?;
    if waiting > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message too long",
        ));
    }
    buffer.resize(waiting.max(1), 0);
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = item {
            descriptors.extend(received);
        }
    }
    let (length, truncated) = (
        message.bytes,
        message
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC),
    );
    if truncated {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message cut off",
        ));
    }
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((
        serde_json::from_slice(&buffer[..length])?,
        descriptors,
    )))
}
