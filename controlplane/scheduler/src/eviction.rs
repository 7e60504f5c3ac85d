//! Ends the pods that make room for another: the condition `DisruptionTarget`, then the deletion,
//! beside the scheduler's task. The pod that they end for is not tried meanwhile.
//!
//! Nothing is retried here: if a victim could not be ended, the pod is tried again, and sees anew
//! who is in its way.
//!
//! Source: `prepareCandidateAsync` in `pkg/scheduler/framework/preemption/preemption.go` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_client::{
    errors::{is_conflict, is_not_found},
    event_recorder::{EventRecorder, EventType, Note},
};
use coracle_telemetry::ErrorChain;
use futures::{StreamExt, stream};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::task::{JoinError, JoinSet};

use crate::pod_info::{PodInfo, PodUid};

/// For one victim.
const DEADLINE: Duration = Duration::from_secs(10);
/// Victims of one pod that are ended at once.
const AT_ONCE: usize = 8;

/// Victims on their way.
pub(crate) struct Evictions {
    client: Client,
    recorder: EventRecorder,
    tasks: JoinSet<Evicted>,
}

/// All victims of one pod have been dealt with.
#[derive(Debug)]
pub(crate) struct Evicted {
    /// For whom.
    pub(crate) preemptor: PodUid,
    /// Those that could not be ended.
    pub(crate) staying: Vec<PodUid>,
}

impl Evictions {
    pub(crate) fn new(client: Client, recorder: EventRecorder) -> Self {
        Self {
            client,
            recorder,
            tasks: JoinSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Ends `victims`, which are on `node`, for `preemptor`.
    pub(crate) fn begin(&mut self, preemptor: &PodInfo, node: &str, victims: Vec<Arc<PodInfo>>) {
        let (client, recorder) = (self.client.clone(), self.recorder.clone());
        let source = preemptor.scheduler_name.to_string();
        let uid = preemptor.uid.clone();
        let message = format!("Preempted by pod {} on node {node}", uid.0);
        let evict = async move {
            let end_one = async |victim: Arc<PodInfo>| {
                let ended = tokio::time::timeout(DEADLINE, end(&client, &source, &victim)).await;
                match ended {
                    Ok(Ok(End::Begun)) => recorder.note(Note {
                        component: source.clone().into(),
                        about: victim.reference(),
                        kind: EventType::Normal,
                        reason: "Preempted".into(),
                        message: message.clone(),
                        times: 1,
                    }),
                    Ok(Ok(End::Gone)) => {}
                    Ok(Err(error)) => return failed(&victim, &ErrorChain(&error)),
                    Err(_) => return failed(&victim, &"the API server did not answer in time"),
                }
                None
            };
            let ends = stream::iter(victims).map(end_one).buffer_unordered(AT_ONCE);
            Evicted {
                preemptor: uid,
                staying: ends.filter_map(async |failed| failed).collect().await,
            }
        };
        coracle_telemetry::spawn_in(&mut self.tasks, "preempt pods", evict);
    }

    /// Waits until the victims of one pod have been dealt with; `None` if none are on their way.
    pub(crate) async fn next(&mut self) -> Option<Result<Evicted, JoinError>> {
        self.tasks.join_next().await
    }
}

enum End {
    Begun,
    Gone,
}

fn failed(victim: &PodInfo, error: &dyn std::fmt::Display) -> Option<PodUid> {
    let pod = victim.key();
    tracing::warn!(pod, %error, "could not end a pod to make room for another");
    Some(victim.uid.clone())
}

async fn end(client: &Client, source: &str, victim: &PodInfo) -> Result<End, kube::Error> {
    if victim.terminating {
        return Ok(End::Gone);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &victim.namespace);
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": format!("{source}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": Time(Timestamp::now()),
    });
    let uid = &*victim.uid.0;
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    let patch = Patch::Strategic(patch);
    let params = PatchParams::default();
    let patched = pods.patch_status(&victim.name, &params, &patch).await;
    if is_gone(&pods, victim, patched.map(drop)).await? {
        return Ok(End::Gone);
    }
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    let deleted = pods.delete(&victim.name, &params).await.map(drop);
    Ok(if is_gone(&pods, victim, deleted).await? {
        End::Gone
    } else {
        End::Begun
    })
}

/// Whether the pod is not there any more, or another has its name.
async fn is_gone(
    pods: &Api<Pod>,
    victim: &PodInfo,
    answer: Result<(), kube::Error>,
) -> Result<bool, kube::Error> {
    match answer {
        Ok(()) => Ok(false),
        Err(error) if is_not_found(&error) => Ok(true),
        // Of its UID, or of something that somebody else has against it.
        Err(error) if is_conflict(&error) => {
            let now = pods.get_metadata_opt(&victim.name).await?;
            let is_there =
                now.is_some_and(|now| now.metadata.uid.as_deref() == Some(&victim.uid.0));
            if is_there { Err(error) } else { Ok(true) }
        }
        Err(error) => Err(error),
    }
}
