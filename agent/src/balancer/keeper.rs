//! Keeps what is known of the API servers true: asks those that may be asked, follows the
//! Endpoints, and writes down who there is.

use std::{path::PathBuf, time::Duration};

use coracle_telemetry::ErrorChain;
use futures::{StreamExt as _, stream::FuturesUnordered};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Balancer, SERVER_NAME, address::ServerAddress, endpoints::Endpoints, known, probe::Probe,
};
use crate::blocking::blocking;

/// What has nothing to do looks again all the same.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What it needs.
pub(crate) struct Keeper {
    pub(crate) balancer: Balancer,
    /// The node's own identity, and whom it believes.
    pub(crate) tls: ClientConfig,
    pub(crate) endpoints: Endpoints,
    /// Where the servers are written down.
    pub(crate) path: PathBuf,
}

impl Keeper {
    /// Keeps on until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let _ = shutdown.run_until_cancelled(self.keep()).await;
    }

    async fn keep(self) {
        let probe = Probe::new(self.tls, ServerName::IpAddress(SERVER_NAME.into()));
        let (mut answers, mut written) = (FuturesUnordered::new(), Vec::new());
        loop {
            for (server, is_used) in self.balancer.take_due() {
                let probe = probe.clone();
                answers.push(async move {
                    let answer = probe.ask(&server, is_used).await;
                    (server, answer)
                });
            }
            let known = self.balancer.known();
            if known != written {
                write(self.path.clone(), known.clone()).await;
                written = known;
            }
            let soon = Instant::now() + LONGEST_PAUSE;
            let due = self.balancer.next_due().unwrap_or(soon);
            tokio::select! {
                Some((server, answer)) = answers.next() => self.balancer.answered(&server, answer),
                () = self.endpoints.changed() => self.balancer.set_listed(&self.endpoints.servers()),
                () = self.balancer.changed() => {}
                () = tokio::time::sleep_until(due) => self.balancer.tick(),
            }
        }
    }
}

/// A failure leaves what was there, and the next change is tried again.
async fn write(path: PathBuf, servers: Vec<ServerAddress>) {
    let saved = blocking({
        let path = path.clone();
        move || known::save(&path, &servers)
    });
    if let Err(error) = saved.await {
        tracing::warn!(path = %path.display(), error = %ErrorChain(&error), "cannot write down which API servers there are");
    }
}
