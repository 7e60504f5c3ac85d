//! Why a question has no answer.

use std::{fmt, io, net::IpAddr, net::SocketAddr, sync::Arc};

use coracle_telemetry::ErrorChain;
use hickory_proto::{
    ProtoError,
    op::ResponseCode,
    rr::{Name, RecordType},
    serialize::binary::DecodeError,
};

/// A question that nobody has answered. The asker is told SERVFAIL, or REFUSED where it asks too
/// much.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ForwardError {
    /// There is nobody to ask about this name: permanent until the settings change.
    #[error("there is no server to ask")]
    NoServers,
    /// One asker waits for too many answers at once.
    #[error("{asker} waits for {limit} answers already")]
    AskerBusy {
        /// Who asks.
        asker: IpAddr,
        /// How many it may wait for.
        limit: usize,
    },
    /// All askers together wait for too many answers at once.
    #[error("{limit} questions wait for answers already")]
    Busy {
        /// How many may wait.
        limit: usize,
    },
    /// No server has answered, and nothing is remembered that could be given instead.
    #[error("nobody has answered {name} {record_type}: {}", Tried(tried))]
    NoAnswer {
        /// What was asked about.
        name: Name,
        /// What was asked for.
        record_type: RecordType,
        /// Who was asked, in order, and what came of it.
        tried: Arc<[Attempt]>,
    },
}

/// One server's try at a question.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The server asked.
    pub server: SocketAddr,
    /// What came of it.
    pub error: Arc<AttemptError>,
}

/// Why a server's try at a question gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The question cannot be written.
    #[error("write the question")]
    Question {
        /// Why not.
        #[source]
        source: ProtoError,
    },
    /// This machine has no socket for it.
    #[error("open a socket")]
    Socket {
        /// Why it has none.
        #[source]
        source: io::Error,
    },
    /// Asking over UDP failed. A refusal by the other machine's kernel is one such.
    #[error("ask over UDP")]
    Udp {
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Nothing that answers the question came in time over UDP.
    #[error("no answer over UDP")]
    UdpSilent,
    /// The answer was too long for UDP, and asking over TCP failed.
    #[error("ask over TCP")]
    Tcp {
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The answer was too long for UDP, and none came in time over TCP.
    #[error("no answer over TCP")]
    TcpSilent,
    /// The answer is broken behind the question.
    #[error("read the answer")]
    Malformed {
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
    /// What came over TCP answers something else, or is cut off there as well.
    #[error("the answer over TCP is of another question or not whole")]
    Mismatch,
    /// The server could not or would not find out.
    #[error("answered {0}")]
    Code(ResponseCode),
}

/// `10.0.0.1:53: no answer over UDP, 10.0.0.2:53: ...`. The causes are part of it: they are a list,
/// which `source` cannot give.
struct Tried<'a>(&'a [Attempt]);

// === impl Tried ===

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, attempt) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            let error = ErrorChain(&*attempt.error);
            write!(f, "{separator}{}: {error}", attempt.server)?;
        }
        Ok(())
    }
}
