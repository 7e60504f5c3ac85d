//! One question to one server: over UDP, and over TCP when the answer does not fit.
//!
//! An answer counts only from the address asked (the socket is connected, the kernel drops what
//! comes from elsewhere) and with the id and the question sent. Everything else is ignored until
//! the time is over: whoever guesses must not be able to end the wait. Both the id and the port
//! are new each time.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use hickory_proto::{
    op::{Edns, Header, Message, MessageType, Metadata, OpCode, Query as Question},
    rr::DNSClass,
    serialize::binary::{BinDecodable as _, BinDecoder, DecodeError},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::{Instant, timeout_at},
};

use super::{error::AttemptError, question::Query};

/// How long one server gets over UDP, and again over TCP.
const ATTEMPT: Duration = Duration::from_millis(500);
/// What we take over UDP: fits every path unfragmented. Source: the DNS flag day of 2020.
const UDP_PAYLOAD: u16 = 1232;
/// A server that sends more than we take is cut off and fails to be read.
const UDP_BUFFER: usize = 4096;

/// What has come over UDP.
#[derive(Debug)]
pub(super) enum Answer {
    Whole(Message),
    /// Ask again over TCP.
    Truncated,
    /// An answer to this question that cannot be read.
    Malformed(DecodeError),
}

/// Asks `server` over UDP. Waits [`ATTEMPT`] at most, and not beyond `deadline`.
///
/// # Errors
/// The server is not there or does not answer.
pub(super) async fn ask_udp(
    server: SocketAddr,
    query: &Query,
    has_edns: bool,
    deadline: Instant,
) -> Result<Answer, AttemptError> {
    let (id, question) = question(query, has_edns)?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await;
    let socket = socket.map_err(|source| AttemptError::Socket { source })?;
    let exchange = async {
        socket.connect(server).await?;
        socket.send(&question).await?;
        let mut buffer = vec![0; UDP_BUFFER];
        loop {
            let length = socket.recv(&mut buffer).await?;
            let datagram = buffer.get(..length).unwrap_or_default();
            if let Some(answer) = udp_answer(datagram, id, query) {
                return Ok(answer);
            }
        }
    };
    match timeout_at(end(deadline), exchange).await {
        Ok(answer) => answer.map_err(|source| AttemptError::Udp { source }),
        Err(_) => Err(AttemptError::UdpSilent),
    }
}

/// Asks `server` over TCP. Waits [`ATTEMPT`] at most, and not beyond `deadline`.
///
/// # Errors
/// The server does not answer, or not this.
pub(super) async fn ask_tcp(
    server: SocketAddr,
    query: &Query,
    has_edns: bool,
    deadline: Instant,
) -> Result<Message, AttemptError> {
    let (id, question) = question(query, has_edns)?;
    let exchange = async {
        let length = u16::try_from(question.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut stream = TcpStream::connect(server).await?;
        // One write: a server may read the length alone and think the rest missing.
        let framed = [&length.to_be_bytes(), &*question].concat();
        stream.write_all(&framed).await?;
        // At most 64 KiB: the length has two bytes.
        let mut answer = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    };
    let answer = match timeout_at(end(deadline), exchange).await {
        Ok(answer) => answer.map_err(|source| AttemptError::Tcp { source })?,
        Err(_) => return Err(AttemptError::TcpSilent),
    };
    match matching(&answer, id, query) {
        Some(metadata) if !metadata.truncation => {
            Message::from_vec(&answer).map_err(|source| AttemptError::Malformed { source })
        }
        _ => Err(AttemptError::Mismatch),
    }
}

fn end(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + ATTEMPT)
}

/// The question as sent, and its id.
fn question(query: &Query, has_edns: bool) -> Result<(u16, Vec<u8>), AttemptError> {
    let id = rand::random();
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.checking_disabled = query.checking_disabled;
    message.add_query(Question::query(query.name.clone(), query.record_type));
    if has_edns {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_PAYLOAD);
        edns.set_dnssec_ok(query.dnssec_ok);
        message.set_edns(edns);
    }
    let bytes = message
        .to_vec()
        .map_err(|source| AttemptError::Question { source })?;
    Ok((id, bytes))
}

fn udp_answer(datagram: &[u8], id: u16, query: &Query) -> Option<Answer> {
    let metadata = matching(datagram, id, query)?;
    // The rest is not looked at: some servers cut within a record.
    if metadata.truncation {
        return Some(Answer::Truncated);
    }
    let message = Message::from_vec(datagram);
    Some(message.map_or_else(Answer::Malformed, Answer::Whole))
}

/// The head of a response to this question. Looks at nothing else, so that what others send costs
/// little: room for the rest is made by the counts in it.
fn matching(bytes: &[u8], id: u16, query: &Query) -> Option<Metadata> {
    let mut decoder = BinDecoder::new(bytes);
    let Header { metadata, counts } = Header::read(&mut decoder).ok()?;
    let is_response = metadata.id == id
        && metadata.message_type == MessageType::Response
        && metadata.op_code == OpCode::Query
        && counts.queries == 1;
    if !is_response {
        return None;
    }
    let question = Question::read(&mut decoder).ok()?;
    let is_asked = question.name == query.name
        && question.query_type == query.record_type
        && question.query_class == DNSClass::IN;
    is_asked.then_some(metadata)
}
