//! Pods bound to this node, watched at the API server.
//!
//! A stream that breaks is resumed, one that is too old (410) listed anew, both with a back-off ([`crate::watch`]). Here
//! events only change their form.

use std::sync::Arc;

use coracle_telemetry::Chain;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::SourceEvent;
use crate::{
    pod::PodExt,
    watch::{self, Pulse},
};

/// Watches until `shutdown`.
pub(crate) async fn run(
    client: kube::Client,
    node_name: String,
    events: mpsc::Sender<SourceEvent>,
    pulse: Pulse,
    shutdown: CancellationToken,
) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node_name}"));
    let stream = watch::events(Api::<Pod>::all(client), config, &pulse);
    let mut stream = std::pin::pin!(stream);
    let mut listing = Vec::new();
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            event = stream.next() => event,
        };
        let event = match event {
            // Once more, if a listing was broken off: half of one must not pass for all pods.
            Some(Ok(watcher::Event::Init)) => {
                listing = Vec::new();
                continue;
            }
            Some(Ok(watcher::Event::InitApply(pod))) => {
                listing.push(prepared(pod));
                continue;
            }
            Some(Ok(watcher::Event::InitDone)) => SourceEvent::Replace(std::mem::take(&mut listing)),
            Some(Ok(watcher::Event::Apply(pod))) => SourceEvent::Apply(prepared(pod)),
            Some(Ok(watcher::Event::Delete(pod))) => SourceEvent::Delete(pod.uid()),
            // No pause here: the stream makes one before it goes on.
            Some(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "watch pods");
                continue;
            }
            None => return,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// What nobody here reads costs memory.
fn prepared(mut pod: Pod) -> Arc<Pod> {
    pod.metadata.managed_fields = None;
    Arc::new(pod)
}
