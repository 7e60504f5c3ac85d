//! Between the runtime and the network: no pod starts before its policies are in the kernel.

use std::{net::IpAddr, time::Duration};

use async_trait::async_trait;
use coracle_policy::objects::{Labels, PodKey};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::peers::Attachment;
use crate::network::{NetworkError, PodNetwork, PodNetworkRequest};

/// Pods that start or end at a time wait here.
const QUEUE: usize = 64;
/// As long as a pod waits for its policies. It is tried again.
const LIMIT: Duration = Duration::from_secs(20);

/// What the keeper is told of this node's pods.
#[derive(Debug)]
pub(super) enum Told {
    Attached {
        attachment: Attachment,
        /// Why its policies are not in the kernel, if they cannot be.
        done: oneshot::Sender<Result<(), String>>,
    },
    Detached {
        pod: PodKey,
        sandbox: crate::runtime::types::SandboxId,
    },
}

/// Tells the keeper of this node's pods.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    told: mpsc::Sender<Told>,
}

/// What the keeper hears from its guard.
#[derive(Debug)]
pub(crate) struct Heard(pub(super) mpsc::Receiver<Told>);

impl Guard {
    pub(crate) fn new() -> (Self, Heard) {
        let (told, heard) = mpsc::channel(QUEUE);
        (Self { told }, Heard(heard))
    }

    async fn admit(&self, attachment: Attachment) -> Result<(), NetworkError> {
        let not_ready = |why: String| NetworkError::NotReady { why };
        let (done, written) = oneshot::channel();
        let told = Told::Attached { attachment, done };
        let answer = async {
            self.told.send(told).await.ok()?;
            written.await.ok()
        };
        match timeout(LIMIT, answer).await {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(why))) => Err(not_ready(format!(
                "the pod's NetworkPolicies cannot be enforced: {why}"
            ))),
            Ok(None) => Err(not_ready("the agent is ending".to_owned())),
            Err(_) => Err(not_ready(format!(
                "which NetworkPolicies the pod has is not known yet: the API server has not told in {} s",
                LIMIT.as_secs()
            ))),
        }
    }
}

/// A network whose pods have their policies as soon as they have an address.
#[derive(Debug, Clone)]
pub(crate) struct GuardedNetwork<N> {
    network: N,
    guard: Guard,
}

impl<N: PodNetwork> GuardedNetwork<N> {
    pub(crate) fn new(network: N, guard: Guard) -> Self {
        Self { network, guard }
    }
}

#[async_trait]
impl<N: PodNetwork> PodNetwork for GuardedNetwork<N> {
    async fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        let addresses = self.network.setup(request).await?;
        match self.guard.admit(attachment(request, &addresses)).await {
            Ok(()) => Ok(addresses),
            Err(error) => {
                // On failure nothing stays, as the trait has it; what cannot be taken back now is
                // found by the next start.
                if let Err(error) = self.teardown(request).await {
                    tracing::warn!(pod = %request.pod, error = %coracle_telemetry::ErrorChain(&error), "cannot detach a pod whose policies are not in the kernel");
                }
                Err(error)
            }
        }
    }

    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.network.teardown(request).await?;
        // Only now: what still sends is still held to its policies.
        let told = Told::Detached {
            pod: key(request),
            sandbox: request.sandbox_id.clone(),
        };
        // Nobody hears it where the agent is ending; its successor looks what there is.
        let _ = self.guard.told.send(told).await;
        Ok(())
    }

    async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.network.check(request).await
    }

    fn ready(&self) -> Result<(), NetworkError> {
        self.network.ready()
    }
}

fn key(request: &PodNetworkRequest) -> PodKey {
    PodKey::new(&request.pod.namespace, &request.pod.name)
}

/// What policies have to know of an attached pod.
pub(crate) fn attachment(request: &PodNetworkRequest, addresses: &[IpAddr]) -> Attachment {
    Attachment {
        sandbox: request.sandbox_id.clone(),
        pod: key(request),
        uid: request.pod.uid.clone(),
        labels: Labels::new(&request.labels),
        addresses: addresses.to_vec(),
    }
}
