//! One question to one server.
//!
//! Each has a socket of its own, with a port that the kernel has drawn, a number that is drawn
//! here, and the server as its only peer: who wants to answer in its place has to guess all of it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use hickory_proto::{
    op::{self, Edns, Message, MessageType, OpCode},
    rr::DNSClass,
    serialize::binary::BinEncodable,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

use super::{Query, Reply};
use crate::wire::MOST_BYTES;

/// Room for a datagram: some servers send more than they are asked to.
const DATAGRAM: usize = 4096;

/// Why a server has not answered.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The question is none.
    #[error("write the question")]
    Write(#[source] hickory_proto::ProtoError),
    /// It cannot be reached.
    #[error("ask {server}")]
    Send {
        /// Who was asked.
        server: SocketAddr,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// Nothing has come.
    #[error("{server} does not answer")]
    Silent {
        /// Who was asked.
        server: SocketAddr,
    },
    /// What has come by a connection is no answer.
    #[error("{server} answers something else")]
    Strange {
        /// Who was asked.
        server: SocketAddr,
    },
}

/// Asks, and waits for the answer; who calls has the deadline. With it comes how long it was.
pub(super) async fn exchange(
    server: SocketAddr,
    query: &Query,
) -> Result<(Reply, usize), ExchangeError> {
    let id: u16 = rand::random();
    let question = question(id, query).map_err(ExchangeError::Write)?;
    let failed = |source| ExchangeError::Send { server, source };
    let answer = by_datagram(server, &question, id, query)
        .await
        .map_err(failed)?;
    if !answer.0.metadata.truncation {
        return Ok(told(answer));
    }
    let bytes = by_connection(server, &question).await.map_err(failed)?;
    let answer = read(&bytes, id, query).ok_or(ExchangeError::Strange { server })?;
    Ok(told((answer, bytes.len())))
}

fn question(id: u16, query: &Query) -> Result<Vec<u8>, hickory_proto::ProtoError> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(op::Query::query(query.name.clone(), query.record_type));
    let mut edns = Edns::new();
    edns.set_max_payload(MOST_BYTES)
        .set_dnssec_ok(query.dnssec_ok);
    message.set_edns(edns);
    message.to_bytes()
}

/// Reads until it is the answer.
async fn by_datagram(
    server: SocketAddr,
    question: &[u8],
    id: u16,
    query: &Query,
) -> io::Result<(Message, usize)> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(message) = read(&buffer[..length], id, query) {
            return Ok((message, length));
        }
    }
}

async fn by_connection(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    let mut sent = length.to_be_bytes().to_vec();
    sent.extend_from_slice(question);
    stream.write_all(&sent).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// The message, if it answers the question.
fn read(bytes: &[u8], id: u16, query: &Query) -> Option<Message> {
    let message = Message::from_vec(bytes).ok()?;
    let [question] = &message.queries[..] else {
        return None;
    };
    let is_answer = message.metadata.message_type == MessageType::Response
        && message.metadata.id == id
        && question.name().eq_ignore_root(&query.name)
        && question.query_type() == query.record_type
        && question.query_class() == DNSClass::IN;
    is_answer.then_some(message)
}

fn told((message, bytes): (Message, usize)) -> (Reply, usize) {
    let reply = Reply {
        code: message.metadata.response_code,
        answers: message.answers,
        authorities: message.authorities,
        additionals: message.additionals,
    };
    (reply, bytes)
}
