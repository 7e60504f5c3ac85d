//! One question to several servers, one after the other, until one answers or the time is over.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use coracle_telemetry::ErrorChain;
use hickory_proto::op::{Message, ResponseCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    error::{Attempt, AttemptError},
    exchange::{Answer, ask_tcp, ask_udp},
    health::Health,
    question::{Query, Reply},
};

/// How long a question may take in all.
const DEADLINE: Duration = Duration::from_secs(2);

/// Asks `servers` until one says how things are. A datagram may get lost, so those that were silent
/// are asked again while there is time; those that gave an error are not.
///
/// Where all that answered could not find out, the last of these answers.
///
/// # Errors
/// None has answered: what was tried, in order.
pub(super) async fn ask(
    servers: &[SocketAddr],
    query: &Query,
    health: &Mutex<Health>,
) -> Result<Reply, Vec<Attempt>> {
    let deadline = Instant::now() + DEADLINE;
    let mut left = health.lock().order(servers, Instant::now());
    let mut tried = Vec::new();
    let mut failure = None;
    while !left.is_empty() && Instant::now() < deadline {
        let mut silent = Vec::new();
        for server in left {
            if Instant::now() >= deadline {
                break;
            }
            let error = match ask_one(server, query, deadline, health).await {
                Ok(reply) if reply.is_answer() => return Ok(reply),
                Ok(reply) => {
                    let code = reply.code;
                    failure = Some(reply);
                    AttemptError::Code(code)
                }
                Err(error) => error,
            };
            if matches!(error, AttemptError::UdpSilent) {
                silent.push(server);
            }
            tracing::debug!(%server, name = %query.name, error = %ErrorChain(&error), "no answer");
            let error = Arc::new(error);
            tried.push(Attempt { server, error });
        }
        left = silent;
    }
    failure.ok_or(tried)
}

/// A server that answers over UDP is well, also when this answer cannot be read or had over TCP:
/// whoever owns one name must not be able to make it look ill.
async fn ask_one(
    server: SocketAddr,
    query: &Query,
    deadline: Instant,
    health: &Mutex<Health>,
) -> Result<Reply, AttemptError> {
    let mut has_edns = true;
    let mut answer = ask_udp(server, query, has_edns, deadline).await;
    if matches!(&answer, Ok(Answer::Whole(message)) if knows_no_edns(message)) {
        has_edns = false;
        answer = ask_udp(server, query, has_edns, deadline).await;
    }
    match &answer {
        Ok(_) => {
            if health.lock().healed(server) {
                tracing::info!(%server, "a DNS server answers again");
            }
        }
        // These say nothing of the server.
        Err(AttemptError::Question { .. } | AttemptError::Socket { .. }) => {}
        Err(error) => {
            let pause = health.lock().failed(server, Instant::now());
            if let Some(pause) = pause {
                let error = ErrorChain(error);
                tracing::warn!(%server, %error, ?pause, "a DNS server does not answer");
            }
        }
    }
    match answer? {
        Answer::Whole(message) => Ok(message.into()),
        Answer::Malformed(source) => Err(AttemptError::Malformed { source }),
        Answer::Truncated => Ok(ask_tcp(server, query, has_edns, deadline).await?.into()),
    }
}

/// Whether this is the error of a server from before EDNS. Clients that ask without it must not be
/// worse off for our asking with it.
///
/// Source: RFC 6891, section 7.
fn knows_no_edns(answer: &Message) -> bool {
    let code = answer.metadata.response_code;
    answer.edns.is_none() && matches!(code, ResponseCode::FormErr | ResponseCode::NotImp)
}
