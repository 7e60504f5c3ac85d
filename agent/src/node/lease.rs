//! The node's heartbeat: a Lease in `kube-node-lease`, renewed every ten seconds.
//!
//! Not renewed for 40 s and more, the control plane takes the node for dead.

use std::time::Duration;

use coracle_api::meta::NODE_LEASE_NAMESPACE;
use coracle_client::pulse::Pulse;
use coracle_telemetry::{Backoff, ErrorChain};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use super::NodeView;

const DURATION_SECS: i32 = 40;
/// Short, as is the longest pause: what is asked while the network is gone must not keep the node
/// from being back soon.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(3);
/// Between two renewals whose clock was set back meanwhile.
const STEP: Duration = Duration::from_millis(1);

/// Renews until `shutdown`.
pub(crate) async fn run(
    client: kube::Client,
    node_name: String,
    interval: Duration,
    node: NodeView,
    pulse: Pulse,
    shutdown: CancellationToken,
) {
    let keeper = Keeper {
        api: Api::namespaced(client, NODE_LEASE_NAMESPACE),
        node_name,
        node,
    };
    let mut known: Option<Lease> = None;
    let mut retry = Backoff::new(RETRY_MIN, RETRY_MAX);
    loop {
        // What was known is given up: after a failure it may be outdated, and is read anew.
        let pause = match tokio::time::timeout(REQUEST_LIMIT, keeper.renew(known.take())).await {
            Ok(Ok(lease)) => {
                known = Some(lease);
                if retry.failures() > 0 {
                    pulse.answered();
                }
                retry.reset();
                interval
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot renew the node's Lease");
                retry.pause()
            }
            Err(_) => {
                tracing::warn!("cannot renew the node's Lease: the API server does not answer");
                // Soon: the time limit was a pause already.
                retry.pause().min(RETRY_MIN)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

struct Keeper {
    api: Api<Lease>,
    node_name: String,
    node: NodeView,
}

impl Keeper {
    async fn renew(&self, known: Option<Lease>) -> Result<Lease, kube::Error> {
        let known = match known {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.node_name).await?,
        };
        let Some(mut lease) = known else {
            return self.api.create(&PostParams::default(), &self.fresh()).await;
        };
        self.stamp(&mut lease);
        self.api
            .replace(&self.node_name, &PostParams::default(), &lease)
            .await
    }

    fn fresh(&self) -> Lease {
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.node_name.clone()),
                namespace: Some(NODE_LEASE_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        };
        self.stamp(&mut lease);
        lease
    }

    fn stamp(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.node_name.clone());
        spec.lease_duration_seconds = Some(DURATION_SECS);
        spec.renew_time = Some(MicroTime(renewal(
            spec.renew_time.as_ref(),
            Timestamp::now(),
        )));
        if lease
            .metadata
            .owner_references
            .as_ref()
            .is_none_or(Vec::is_empty)
        {
            lease.metadata.owner_references = self.owner().map(|owner| vec![owner]);
        }
    }

    fn owner(&self) -> Option<OwnerReference> {
        let node: std::sync::Arc<Node> = self.node.lock().clone()?;
        Some(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node_name.clone(),
            uid: node.metadata.uid.clone()?,
            ..OwnerReference::default()
        })
    }
}

/// The control plane takes only a later time for a sign of life: a clock that was set back must not
/// make the node a dead one until it has caught up.
fn renewal(last: Option<&MicroTime>, now: Timestamp) -> Timestamp {
    let after_last = last.and_then(|last| last.0.checked_add(STEP).ok());
    after_last.map_or(now, |after_last| after_last.max(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_go_forward_whatever_the_clock_does() {
        let at = |secs| Timestamp::from_second(secs).expect("in range");
        assert_eq!(renewal(None, at(100)), at(100));
        assert_eq!(renewal(Some(&MicroTime(at(90))), at(100)), at(100));
        assert_eq!(renewal(Some(&MicroTime(at(700))), at(100)), at(700) + STEP);
    }

    #[tokio::test]
    async fn the_first_answer_after_a_silence_is_told() {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                if (1..4).contains(&number) {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                let lease = serde_json::json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "n", "resourceVersion": "1"}, "spec": {}});
                Ok(http::Response::new(kube::client::Body::from(
                    lease.to_string().into_bytes(),
                )))
            }
        });
        let client = kube::Client::new(service, NODE_LEASE_NAMESPACE);
        let (pulse, shutdown) = (Pulse::default(), CancellationToken::new());
        let mut back = pulse.subscribe();
        let interval = Duration::from_millis(1);
        let keeper = coracle_telemetry::spawn(
            "task of a test",
            run(
                client,
                "n".to_owned(),
                interval,
                NodeView::default(),
                pulse,
                shutdown.clone(),
            ),
        );
        tokio::time::timeout(Duration::from_secs(20), back.changed())
            .await
            .expect("told")
            .expect("it runs");
        assert_eq!(*back.borrow(), 1, "and only then");
        shutdown.cancel();
        keeper.await.expect("no panic");
    }
}
