//! The first contact, of a node that does not know its cluster's authority yet.

use std::time::Duration;

use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff};
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    JoinError,
    token::Token,
    trust::{self, TrustError},
};
use crate::balancer::{Balancer, ServerAddress};

/// How long servers that do not answer are waited for when joining.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(5));

type Failures = Vec<(ServerAddress, TrustError)>;

/// The first server that can be reached and its CA's certificate, with the patience that a server
/// needs that starts at the same time.
pub(super) async fn first(
    balancer: &Balancer,
    token: &Token,
    shutdown: &CancellationToken,
) -> Result<(ServerAddress, CertificateDer<'static>), JoinError> {
    let end = Instant::now() + JOIN_LIMIT;
    let (mut told, mut retry) = (false, Backoff::of(RETRY));
    loop {
        let error = match each_once(balancer, token).await {
            Ok(found) => return Ok(found),
            Err(failures) => sum(failures),
        };
        let is_final = matches!(error, JoinError::WrongCa { .. });
        if is_final || Instant::now() >= end || shutdown.is_cancelled() {
            return Err(error);
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(error = %ErrorChain(&error), "wait for the server");
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(retry.pause()) => {}
        }
    }
}

/// Asks each server once.
async fn each_once(
    balancer: &Balancer,
    token: &Token,
) -> Result<(ServerAddress, CertificateDer<'static>), Failures> {
    let mut failures = Failures::new();
    while let Some(server) = balancer.next(|one| failures.iter().any(|(tried, _)| tried == one)) {
        match trust::fetch_ca(&server, token.ca_hash).await {
            Ok(ca) => {
                balancer.reached(&server);
                return Ok((server, ca));
            }
            Err(error) => {
                balancer.unreachable(&server, &ErrorChain(&error).to_string());
                failures.push((server, error));
            }
        }
    }
    Err(failures)
}

/// One that is another cluster's is told before all that do not answer: it never will be ours.
fn sum(failures: Failures) -> JoinError {
    let foreign = failures
        .iter()
        .find(|(_, error)| matches!(error, TrustError::WrongCa));
    if let Some((server, _)) = foreign {
        return JoinError::WrongCa {
            server: server.to_string(),
        };
    }
    let (servers, messages): (Vec<_>, Vec<_>) = failures
        .iter()
        .map(|(server, error)| (server.to_string(), ErrorChain(error).to_string()))
        .unzip();
    JoinError::Unreachable {
        server: servers.join(", "),
        message: messages.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use coracle_trust::CaHash;

    use super::*;
    use crate::balancer::tests::server::Authority;

    fn token(authority: &Authority) -> Token {
        Token {
            ca_hash: CaHash::of(&authority.ca),
            bearer: String::new(),
        }
    }

    #[tokio::test]
    async fn any_server_of_the_cluster_will_do() {
        let authority = Authority::new();
        let mut dead = authority.server("dead").await;
        let (alive, stranger) = (
            authority.server("alive").await,
            Authority::new().server("stranger").await,
        );
        dead.kill().await;
        let given = [dead.address(), stranger.address(), alive.address()];
        let balancer = Balancer::new("n", &given, Vec::new()).expect("given");
        let (found, ca) = first(&balancer, &token(&authority), &CancellationToken::new())
            .await
            .expect("one is there");
        assert_eq!((found, ca), (alive.address(), authority.ca));
        assert_eq!(balancer.next(|_| false), Some(alive.address()));
    }

    #[tokio::test]
    async fn a_server_of_another_cluster_is_told_at_once() {
        let (authority, stranger) = (Authority::new(), Authority::new().server("stranger").await);
        let balancer = Balancer::new("n", &[stranger.address()], Vec::new()).expect("given");
        let error = first(&balancer, &token(&authority), &CancellationToken::new())
            .await
            .expect_err("not ours");
        assert!(matches!(error, JoinError::WrongCa { .. }), "{error}");
    }

    #[tokio::test]
    async fn who_cannot_be_reached_is_named() {
        let authority = Authority::new();
        let mut servers = [authority.server("a").await, authority.server("b").await];
        let given = servers.each_ref().map(|server| server.address());
        for server in &mut servers {
            server.kill().await;
        }
        let balancer = Balancer::new("n", &given, Vec::new()).expect("given");
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let error = first(&balancer, &token(&authority), &shutdown).await;
        let error = error.expect_err("nobody is there").to_string();
        for address in given {
            assert!(error.contains(address.as_str()), "{error}");
        }
    }
}
