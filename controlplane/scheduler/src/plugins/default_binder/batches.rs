//! Bindings on their way: the first alone and at once, those that come while requests are under way
//! together, as soon as one of these is back.
//!
//! There is no task that sends. Whoever waits for a turn and gets it sends what waits by then, its
//! own and others', and tells each what came of it.
//!
//! ```text
//! bind > wait > is told                          somebody else has sent it
//!             > has the turn > send what waits > tell each
//! ```
//!
//! Many are one BindingBatch, where the server has that; where it has not, or does not let us, they
//! are as many requests at once, and it is asked again later.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use kube::{
    Client,
    api::PostParams,
    core::{Request, Status},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};

use super::{BindError, DEADLINE};
use crate::pod_info::PodInfo;

const BATCHES: &str = "/apis/scheduling.coracle.dev/v1alpha1/bindingbatches";
/// Requests at once: while one waits for the disk, the next is read.
const TURNS: usize = 2;
/// How long a turn is kept from others.
const HELD: Duration = Duration::from_millis(100);
/// Most Bindings of one request: a body of 30 KB, which no server takes for a large one.
const MAX_BINDINGS: usize = 128;
/// After a server without batches, how long it is not asked for them.
const ASKED_AGAIN: Duration = Duration::from_secs(600);

/// One pod's.
pub(super) struct Binding {
    namespace: String,
    name: String,
    text: Box<RawValue>,
}

/// What waits to be sent, and who may send.
pub(super) struct Batches {
    client: Client,
    turns: Semaphore,
    /// At most one for each pod that is on its way to be bound.
    waiting: Mutex<VecDeque<Waiting>>,
    /// When the server refused a batch as such.
    refused: Mutex<Option<Instant>>,
}

struct Waiting {
    binding: Binding,
    told: oneshot::Sender<Result<(), BindError>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    target: Target<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Target<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Batch<'a> {
    api_version: &'static str,
    kind: &'static str,
    bindings: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Answer {
    outcomes: Vec<Status>,
}

impl Binding {
    /// Puts `pod`, and no other of its name, on `node`.
    pub(super) fn new(pod: &PodInfo, node: &str) -> Self {
        let wire = Wire {
            api_version: "v1",
            kind: "Binding",
            metadata: Metadata {
                name: &pod.name,
                namespace: &pod.namespace,
                uid: &pod.uid.0,
            },
            target: Target {
                api_version: "v1",
                kind: "Node",
                name: node,
            },
        };
        Self {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            text: serde_json::value::to_raw_value(&wire)
                .expect("texts and nothing else are always JSON"),
        }
    }
}

impl Batches {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            turns: Semaphore::new(TURNS),
            waiting: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    pub(super) async fn bind(&self, binding: Binding) -> Result<(), BindError> {
        let (told, mut outcome) = oneshot::channel();
        self.waiting.lock().push_back(Waiting { binding, told });
        loop {
            let turn = tokio::select! {
                biased;
                outcome = &mut outcome => return outcome.unwrap_or(Err(BindError::GivenUp)),
                turn = self.turns.acquire() => turn,
            };
            let batch = self.take();
            if batch.is_empty() {
                // It is on its way.
                drop(turn);
                return outcome.await.unwrap_or(Err(BindError::GivenUp));
            }
            let mut sending = pin!(self.send(batch));
            if timeout(HELD, &mut sending).await.is_err() {
                // A slow one is not waited for by all.
                drop(turn);
                sending.await;
            }
        }
    }

    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(MAX_BINDINGS);
        waiting.drain(..count).collect()
    }

    async fn send(&self, batch: Vec<Waiting>) {
        if batch.len() > 1 && !self.is_refused() {
            match self.send_together(&batch).await {
                Err(BindError::Api(error)) if is_of_no_use(&error) => {
                    tracing::debug!(%error, "pods are bound one by one: the server takes no batches");
                    *self.refused.lock() = Some(Instant::now());
                }
                sent => return tell(batch, sent),
            }
        }
        let send = |one: Waiting| async move {
            let sent = self.send_alone(&one.binding).await;
            // Nobody waits for it once the scheduler stops.
            let _ = one.told.send(sent);
        };
        futures::stream::iter(batch)
            .for_each_concurrent(MAX_BINDINGS, send)
            .await;
    }

    fn is_refused(&self) -> bool {
        let refused = *self.refused.lock();
        refused.is_some_and(|at| at.elapsed() < ASKED_AGAIN)
    }

    async fn send_alone(&self, binding: &Binding) -> Result<(), BindError> {
        let path = format!("/api/v1/namespaces/{}/pods", binding.namespace);
        let body = binding.text.get().as_bytes().to_vec();
        let request = Request::new(path)
            .create_subresource("binding", &binding.name, &PostParams::default(), body)
            .map_err(|error| BindError::Api(kube::Error::BuildRequest(error)))?;
        self.ask::<Status>(request).await.map(drop)
    }

    async fn send_together(&self, batch: &[Waiting]) -> Result<Answer, BindError> {
        let batch = Batch {
            api_version: "scheduling.coracle.dev/v1alpha1",
            kind: "BindingBatch",
            bindings: batch.iter().map(|one| &*one.binding.text).collect(),
        };
        let body = serde_json::to_vec(&batch)
            .map_err(|error| BindError::Api(kube::Error::SerdeError(error)))?;
        let request = Request::new(BATCHES)
            .create(&PostParams::default(), body)
            .map_err(|error| BindError::Api(kube::Error::BuildRequest(error)))?;
        self.ask(request).await
    }

    async fn ask<T>(&self, request: http::Request<Vec<u8>>) -> Result<T, BindError>
    where
        T: for<'de> Deserialize<'de>,
    {
        match timeout(DEADLINE, self.client.request(request)).await {
            Ok(answer) => answer.map_err(BindError::Api),
            Err(_) => Err(BindError::Timeout),
        }
    }
}

/// Whether a server does not have batches, or not for us.
fn is_of_no_use(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404 | 405 | 415))
}

/// Tells each what came of its own.
fn tell(batch: Vec<Waiting>, sent: Result<Answer, BindError>) {
    let count = batch.len();
    let mut outcomes = match sent {
        Ok(answer) => answer.outcomes.into_iter(),
        Err(error) => return tell_all(batch, error),
    };
    let answered = outcomes.len();
    for one in batch {
        let outcome = match outcomes.next() {
            Some(status) if status.is_failure() => {
                Err(BindError::Api(kube::Error::Api(status.boxed())))
            }
            Some(_) => Ok(()),
            None => Err(BindError::Unanswered {
                answered,
                sent: count,
            }),
        };
        let _ = one.told.send(outcome);
    }
}

fn tell_all(batch: Vec<Waiting>, error: BindError) {
    let shared = match error {
        BindError::Api(error) => Some(Arc::new(error)),
        _ => None,
    };
    for one in batch {
        let why = match &shared {
            Some(error) => BindError::Batch(error.clone()),
            None => BindError::Timeout,
        };
        let _ = one.told.send(Err(why));
    }
}
