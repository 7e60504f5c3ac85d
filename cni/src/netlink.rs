//! rtnetlink on one blocking socket: many requests in one message to the kernel.
//!
//! The message types are those of the `rtnetlink` crate; its connection task is not used, because a
//! pod's links, addresses and routes are known beforehand and go out as one batch. The socket
//! belongs to the namespace that it was opened in, whichever thread uses it later. Builds no
//! messages beyond those that this crate and the agent need. `lookup` asks what is there.

mod attribute;
mod lookup;
mod types;

use std::io;

use nix::errno::Errno;
pub use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
        NetlinkHeader, NetlinkMessage, NetlinkPayload,
    },
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};

pub(crate) use self::attribute::attribute;
pub use self::types::{
    Link, Neighbour, Route, TokenBucket, address_message, address_removal, labelled,
};

/// Room for one answer: the kernel never sends more than 32 KiB in one datagram of a dump.
const RECEIVE_BYTES: usize = 32 * 1024;

/// Requests in one message: their answers must fit into the socket's receive buffer (212,992 bytes
/// where nobody changed it, 768 for each answer with its bookkeeping), or the kernel drops some.
const MOST_AT_ONCE: usize = 100;

/// One request of a batch.
#[derive(Debug, Clone)]
pub struct Request {
    what: &'static str,
    message: RouteNetlinkMessage,
    flags: u16,
    tolerated: &'static [Errno],
}

impl Request {
    /// Makes something new.
    #[must_use]
    pub fn create(what: &'static str, message: RouteNetlinkMessage) -> Self {
        Self {
            what,
            message,
            flags: NLM_F_CREATE | NLM_F_EXCL,
            tolerated: &[],
        }
    }

    /// Makes something or replaces what is there (routes).
    #[must_use]
    pub fn replace(what: &'static str, message: RouteNetlinkMessage) -> Self {
        Self {
            what,
            message,
            flags: NLM_F_CREATE | NLM_F_REPLACE,
            tolerated: &[],
        }
    }

    /// Changes or deletes what is there.
    #[must_use]
    pub fn change(what: &'static str, message: RouteNetlinkMessage) -> Self {
        Self {
            what,
            message,
            flags: 0,
            tolerated: &[],
        }
    }

    /// These errors count as success.
    #[must_use]
    pub fn tolerate(mut self, errnos: &'static [Errno]) -> Self {
        self.tolerated = errnos;
        self
    }
}

impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        match error {
            NetlinkError::Socket(source) | NetlinkError::Refused { source, .. } => source,
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The socket itself.
    #[error("use a route socket")]
    Socket(#[source] io::Error),
    /// The kernel refused.
    #[error("{what}")]
    Refused {
        /// What was asked, such as `make the veth pair`.
        what: &'static str,
        /// Its answer.
        #[source]
        source: io::Error,
    },
}

impl NetlinkError {
    /// The kernel's errno, if it refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Socket(_) => None,
        }
    }
}

/// A socket to the routing part of the kernel.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(NetlinkError::Socket)?;
        socket.bind_auto().map_err(NetlinkError::Socket)?;
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(NetlinkError::Socket)?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sends the requests, a hundred in one message, and waits for all answers. The kernel works
    /// through them in order and does not stop at a failure.
    ///
    /// # Errors
    /// The first one that the kernel refused and that is not tolerated.
    pub fn batch(&mut self, requests: Vec<Request>) -> Result<(), NetlinkError> {
        let mut requests = requests.into_iter().peekable();
        let mut outcome = Ok(());
        while requests.peek().is_some() {
            match self.exchange(requests.by_ref().take(MOST_AT_ONCE).collect()) {
                // Nothing more can be asked.
                Err(NetlinkError::Socket(source)) => return Err(NetlinkError::Socket(source)),
                answer => outcome = outcome.and(answer),
            }
        }
        outcome
    }

    fn exchange(&mut self, requests: Vec<Request>) -> Result<(), NetlinkError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        let count = requests.len();
        let mut expected = Vec::with_capacity(count);
        for request in requests {
            expected.push((request.what, request.tolerated));
            self.append(
                &mut bytes,
                request.message,
                request.flags | NLM_F_REQUEST | NLM_F_ACK,
            );
        }
        self.socket.send(&bytes, 0).map_err(NetlinkError::Socket)?;
        let mut failure: Option<(usize, NetlinkError)> = None;
        let mut answered = 0;
        while answered < count {
            for message in self.receive()? {
                let NetlinkPayload::Error(answer) = message.payload else {
                    continue;
                };
                let position = message.header.sequence_number.wrapping_sub(first) as usize;
                let Some(&(what, tolerated)) = expected.get(position) else {
                    continue;
                };
                answered += 1;
                let Some(code) = answer.code else { continue };
                let errno = Errno::from_raw(code.get().saturating_neg());
                if !tolerated.contains(&errno)
                    && failure.as_ref().is_none_or(|(at, _)| position < *at)
                {
                    failure = Some((
                        position,
                        NetlinkError::Refused {
                            what,
                            source: errno.into(),
                        },
                    ));
                }
            }
        }
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn dump(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, message, NLM_F_REQUEST | NLM_F_DUMP);
        self.socket.send(&bytes, 0).map_err(NetlinkError::Socket)?;
        let mut all = Vec::new();
        loop {
            for message in self.receive()? {
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => all.push(inner),
                    NetlinkPayload::Done(_) => return Ok(all),
                    NetlinkPayload::Error(answer) => {
                        let errno = answer.code.map_or(0, |c| c.get().saturating_neg());
                        let source = io::Error::from_raw_os_error(errno);
                        return Err(NetlinkError::Refused {
                            what: "list",
                            source,
                        });
                    }
                    _ => {}
                }
            }
        }
    }

    fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let start = bytes.len();
        // Messages start on 4-byte boundaries.
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..]);
    }

    fn receive(&mut self) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, NetlinkError> {
        let mut bytes = Vec::with_capacity(RECEIVE_BYTES);
        let (read, _) = self
            .socket
            .recv_from(&mut bytes, 0)
            .map_err(NetlinkError::Socket)?;
        let invalid =
            |why: String| NetlinkError::Socket(io::Error::new(io::ErrorKind::InvalidData, why));
        if read > bytes.len() {
            return Err(invalid(format!("answer of {read} bytes was cut off")));
        }
        let mut rest = &bytes[..];
        let mut messages = Vec::new();
        while rest.len() >= 16 {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|e| invalid(e.to_string()))?;
            let step = (message.header.length as usize).next_multiple_of(4);
            if step == 0 {
                break;
            }
            messages.push(message);
            rest = rest.get(step..).unwrap_or_default();
        }
        Ok(messages)
    }
}
