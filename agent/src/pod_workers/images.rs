//! Sees to it that a container's image is there: pull policy and pull back-off.

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_telemetry::{ErrorChain, span};
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::PodWorker;
use crate::{
    backoff::RestartBackoff,
    container_config,
    context::NodeContext,
    events::EventType,
    pod::PodExt,
    runtime::{Image, ImageError},
    status_reason::StatusReason,
};

/// A pull that waits is told of once in so long, however often its pod is looked at meanwhile.
const BACK_OFF_TOLD: Duration = Duration::from_secs(10);

/// Failed pulls, by image. Owned by the pod's worker; the lock is only for concurrent pulls of one
/// sync.
#[derive(Default, Clone)]
pub(super) struct PullBackoff(Arc<Mutex<Pulls>>);

#[derive(Default)]
struct Pulls {
    backoff: RestartBackoff,
    failed_at: HashMap<String, (Instant, StatusReason)>,
    /// By container: when it was last told that its image's pull waits.
    told_at: HashMap<String, Instant>,
}

impl PullBackoff {
    /// How long this image is not asked for, and how the last pull failed.
    fn left(&self, reference: &str) -> Option<(Duration, StatusReason)> {
        let pulls = self.0.lock();
        let (at, last) = pulls.failed_at.get(reference)?;
        let (left, _) = pulls.backoff.remaining(reference, *at, Instant::now())?;
        Some((left, last.clone()))
    }

    fn succeeded(&self, reference: &str) {
        let mut pulls = self.0.lock();
        pulls.backoff.reset(reference);
        pulls.failed_at.remove(reference);
    }

    /// Whether the container is to be told again that it waits; then it has been.
    fn tells(&self, container: &str) -> bool {
        let (mut pulls, now) = (self.0.lock(), Instant::now());
        let told = pulls.told_at.get(container);
        let is_due = told.is_none_or(|&at| now.duration_since(at) >= BACK_OFF_TOLD);
        if is_due {
            pulls.told_at.insert(container.to_owned(), now);
        }
        is_due
    }

    fn failed(&self, reference: &str, last: StatusReason) {
        let (mut pulls, now) = (self.0.lock(), Instant::now());
        pulls.backoff.next(reference, now, now);
        pulls.failed_at.insert(reference.to_owned(), (now, last));
    }
}

/// An image that a container can start from.
pub(super) struct Available {
    pub(super) image: Image,
    /// It was there before: told when the container is about to be made of it.
    pub(super) present: Option<String>,
}

/// Why a container has no image yet.
pub(super) struct Unavailable {
    pub(super) why: StatusReason,
    /// When to try again; `None`: after the usual pause.
    pub(super) retry: Option<Duration>,
}

impl PodWorker {
    /// The images of these containers, in order. Gives up early when the pod is deleted meanwhile.
    pub(super) fn ensure_images(
        &self,
        containers: &[&Container],
    ) -> impl Future<Output = Vec<Result<Available, Unavailable>>> + use<> {
        let (ctx, pod, pulls) = (
            Arc::clone(&self.ctx),
            Arc::clone(&self.pod),
            self.pulls.clone(),
        );
        let containers: Vec<Container> = containers
            .iter()
            .map(|&container| container.clone())
            .collect();
        let mut desired = self.desired.clone();
        let shutdown = self.shutdown.clone();
        async move {
            let cancelled = async {
                tokio::select! {
                    _ = desired.wait_for(super::Desired::must_stop) => {}
                    () = shutdown.cancelled() => {}
                }
            };
            tokio::pin!(cancelled);
            let all = futures::future::join_all(
                containers
                    .iter()
                    .map(|container| ensure(&ctx, &pod, &pulls, container)),
            );
            tokio::select! {
                images = all => images,
                () = &mut cancelled => containers.iter().map(|_| Err(interrupted())).collect(),
            }
        }
    }
}

fn interrupted() -> Unavailable {
    let why = StatusReason::new("ContainerCreating", String::new());
    Unavailable {
        why,
        retry: Some(Duration::from_millis(1)),
    }
}

async fn ensure(
    ctx: &NodeContext,
    pod: &Arc<Pod>,
    pulls: &PullBackoff,
    container: &Container,
) -> Result<Available, Unavailable> {
    let reference = container.image.as_deref().unwrap_or_default();
    let event = |severity, reason, message: String| {
        ctx.events
            .pod(pod, Some(&container.name), severity, reason, message)
    };
    let present = match ctx.images.image_status(reference).await {
        Ok(present) => present,
        Err(error) => return Err(failed(reference, &error, &event)),
    };
    let policy = container
        .image_pull_policy
        .as_deref()
        .unwrap_or_else(|| default_policy(reference));
    match (present, policy) {
        (Some(image), "IfNotPresent" | "Never")
            if has_run(ctx, pod, container, &image).await || may_use(ctx, pod, reference).await =>
        {
            return Ok(Available {
                image,
                present: Some(format!(
                    "Container image \"{reference}\" already present on machine and can be accessed by the pod"
                )),
            });
        }
        // Somebody else's credentials brought it here. Who may ask its registry proves there what
        // they may have.
        (Some(_), "Never") => {
            let error = ImageError::NeverPullForeign {
                reference: reference.to_owned(),
            };
            return Err(failed(reference, &error, &event));
        }
        (None, "Never") => {
            let error = ImageError::NeverPull {
                reference: reference.to_owned(),
            };
            return Err(failed(reference, &error, &event));
        }
        _ => {}
    }
    if let Some((left, last)) = pulls.left(reference) {
        let is_told = pulls.tells(&container.name);
        let event = |severity, reason, message| {
            if is_told {
                event(severity, reason, message);
            }
        };
        return Err(backed_off(reference, left, &last, &event));
    }
    let image = pull(ctx, pod, pulls, reference, &event).await?;
    Ok(Available {
        image,
        present: None,
    })
}

/// Whether this very container ran from the image before: it proved then that it may, and must be
/// able to start again while neither the API nor the registry answers. The node's own records tell:
/// a pod's status opens no image, as many more may write that than may have the image.
async fn has_run(ctx: &NodeContext, pod: &Pod, container: &Container, image: &Image) -> bool {
    let known = ctx.runtime.pod_state(&pod.uid()).await;
    known.is_ok_and(|(_, known)| {
        known
            .iter()
            .any(|known| known.name == container.name && known.image_id == image.id)
    })
}

/// Whether the pod may run an image that is there, without asking its registry. The pod's secrets
/// are read only if that depends on them. What cannot be told is no.
async fn may_use(ctx: &NodeContext, pod: &Arc<Pod>, reference: &str) -> bool {
    if matches!(ctx.images.may_use(reference, &[]).await, Ok(true)) {
        return true;
    }
    let (auth, _) = container_config::pull_credentials(ctx, pod).await;
    !auth.is_empty() && matches!(ctx.images.may_use(reference, &auth).await, Ok(true))
}

async fn pull(
    ctx: &NodeContext,
    pod: &Arc<Pod>,
    pulls: &PullBackoff,
    reference: &str,
    event: &(impl Fn(EventType, &'static str, String) + Sync),
) -> Result<Image, Unavailable> {
    let (auth, missing) = container_config::pull_credentials(ctx, pod).await;
    if !missing.is_empty() {
        let names = missing.join(", ");
        let text = format!(
            "Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed."
        );
        event(EventType::Warning, "FailedToRetrieveImagePullSecret", text);
    }
    event(
        EventType::Normal,
        "Pulling",
        format!("Pulling image \"{reference}\""),
    );
    let began = Instant::now();
    match ctx
        .images
        .pull_image(reference, &auth)
        .instrument(span!("PullImage", image = reference))
        .await
    {
        Ok(image) => {
            pulls.succeeded(reference);
            let took = format!("{:.3}s", began.elapsed().as_secs_f64());
            let size = image.size_bytes;
            event(
                EventType::Normal,
                "Pulled",
                format!(
                    "Successfully pulled image \"{reference}\" in {took} ({took} including waiting). Image size: {size} bytes."
                ),
            );
            Ok(image)
        }
        Err(error) => {
            let mut failed = failed(reference, &error, event);
            if matches!(error, ImageError::Pull { .. } | ImageError::Store(_)) {
                pulls.failed(reference, failed.why.clone());
                // Comes again soon to say that it waits.
                failed.retry = Some(Duration::from_secs(1));
            }
            Err(failed)
        }
    }
}

/// The pull before this one failed a moment ago: nothing is asked of the registry.
fn backed_off(
    reference: &str,
    left: Duration,
    last: &StatusReason,
    event: &impl Fn(EventType, &'static str, String),
) -> Unavailable {
    let message = format!("Back-off pulling image \"{reference}\"");
    event(EventType::Normal, "BackOff", message.clone());
    event(
        EventType::Warning,
        "Failed",
        "Error: ImagePullBackOff".to_owned(),
    );
    let why = StatusReason {
        reason: "ImagePullBackOff".to_owned(),
        message: format!("{message}: {}: {}", last.reason, last.message),
    };
    Unavailable {
        why,
        retry: Some(left),
    }
}

/// Tells of it. Tried again after the usual pause.
fn failed(
    reference: &str,
    error: &ImageError,
    event: &impl Fn(EventType, &'static str, String),
) -> Unavailable {
    let (event_reason, text, why) = told(reference, error);
    event(EventType::Warning, event_reason, text);
    event(
        EventType::Warning,
        "Failed",
        format!("Error: {}", why.reason),
    );
    Unavailable { why, retry: None }
}

/// The event's reason and text, and the waiting reason, in the words of upstream's
/// `image_manager.go` at v1.37. Its `SignatureValidationFailed` does not come: no signature is
/// looked at.
fn told(reference: &str, error: &ImageError) -> (&'static str, String, StatusReason) {
    let cause = ErrorChain(error).to_string();
    let (waiting, event, text, message) = match error {
        ImageError::InvalidName { .. } => {
            let text = format!("Failed to apply default image tag \"{reference}\": {cause}");
            ("InvalidImageName", "InspectFailed", text.clone(), text)
        }
        ImageError::NeverPull { .. } => {
            let text =
                format!("Container image \"{reference}\" is not present with pull policy of Never");
            ("ErrImageNeverPull", "ErrImageNeverPull", text.clone(), text)
        }
        ImageError::NeverPullForeign { .. } => {
            let text = format!(
                "Container image \"{reference}\" is present with pull policy of Never but does not have the proper credentials"
            );
            ("ErrImageNeverPull", "ErrImageNeverPull", text.clone(), text)
        }
        ImageError::Pull { source, .. } if source.is_unavailable() => {
            let reason = "RegistryUnavailable";
            let text = format!("Failed to pull image \"{reference}\": {reason}: {cause}");
            let message = format!(
                "image pull failed for {reference} because the registry is unavailable: {cause}"
            );
            (reason, "Failed", text, message)
        }
        ImageError::Pull { .. } => {
            let text = format!("Failed to pull image \"{reference}\": {cause}");
            ("ErrImagePull", "Failed", text, cause)
        }
        ImageError::Absent { .. } | ImageError::Store(_) => {
            let text = format!("Failed to inspect image \"{reference}\": {cause}");
            ("ImageInspectError", "InspectFailed", text.clone(), text)
        }
    };
    (event, text, StatusReason::new(waiting, message))
}

/// `Always` for `:latest` and untagged images, as the API server defaults it.
fn default_policy(reference: &str) -> &'static str {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    let moving =
        !reference.contains('@') && name.rsplit_once(':').is_none_or(|(_, tag)| tag == "latest");
    if moving { "Always" } else { "IfNotPresent" }
}

#[cfg(test)]
mod tests;
