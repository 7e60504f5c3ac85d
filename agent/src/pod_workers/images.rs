//! Sees to it that a container's image is there: pull policy and pull back-off.

use std::{sync::Arc, time::Duration};

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

/// Failed pulls, by image. Owned by the pod's worker; the lock is only for concurrent pulls of one
/// sync.
#[derive(Default, Clone)]
pub(super) struct PullBackoff(Arc<Mutex<Pulls>>);

#[derive(Default)]
struct Pulls {
    backoff: RestartBackoff,
    failed_at: std::collections::HashMap<String, (Instant, String)>,
}

impl PullBackoff {
    /// How long this image is not asked for, and how the last pull failed.
    fn left(&self, reference: &str) -> Option<(Duration, String)> {
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

    fn failed(&self, reference: &str, error: &ImageError) {
        let (mut pulls, now) = (self.0.lock(), Instant::now());
        pulls.backoff.next(reference, now, now);
        let last = ErrorChain(error).to_string();
        pulls.failed_at.insert(reference.to_owned(), (now, last));
    }
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
    ) -> impl Future<Output = Vec<Result<Image, Unavailable>>> + use<> {
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
) -> Result<Image, Unavailable> {
    let reference = container.image.as_deref().unwrap_or_default();
    let event = |severity, reason, message: String| {
        ctx.events
            .pod(pod, Some(&container.name), severity, reason, message)
    };
    let present = match ctx.images.image_status(reference).await {
        Ok(present) => present,
        Err(error) => return Err(failed(&error, &event, None)),
    };
    let policy = container
        .image_pull_policy
        .as_deref()
        .unwrap_or_else(|| default_policy(reference));
    match (present, policy) {
        (Some(image), "IfNotPresent" | "Never")
            if has_run(ctx, pod, container, &image).await || may_use(ctx, pod, reference).await =>
        {
            event(
                EventType::Normal,
                "Pulled",
                format!(
                    "Container image \"{reference}\" already present on machine and can be accessed by the pod"
                ),
            );
            return Ok(image);
        }
        // Somebody else's credentials brought it here. Who may ask its registry proves there what
        // they may have.
        (Some(_), "Never") => {
            return Err(failed(
                &ImageError::NeverPullForeign {
                    reference: reference.to_owned(),
                },
                &event,
                None,
            ));
        }
        (None, "Never") => {
            return Err(failed(
                &ImageError::NeverPull {
                    reference: reference.to_owned(),
                },
                &event,
                None,
            ));
        }
        _ => {}
    }
    pull(ctx, pod, pulls, reference, &event).await
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
    if let Some((left, last)) = pulls.left(reference) {
        return Err(backed_off(reference, left, &last, event));
    }
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
            let retriable = matches!(error, ImageError::Pull { .. } | ImageError::Store { .. });
            // Comes again soon to say that it waits.
            let retry = retriable.then(|| {
                pulls.failed(reference, &error);
                Duration::from_secs(1)
            });
            Err(failed(&error, event, retry))
        }
    }
}

/// The pull before this one failed a moment ago: nothing is asked of the registry.
fn backed_off(
    reference: &str,
    left: Duration,
    last: &str,
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
        message: format!("{message}: ErrImagePull: {last}"),
    };
    Unavailable {
        why,
        retry: Some(left),
    }
}

fn failed(
    error: &ImageError,
    event: &impl Fn(EventType, &'static str, String),
    retry: Option<Duration>,
) -> Unavailable {
    let (event_reason, text, why) = told(error);
    event(EventType::Warning, event_reason, text);
    event(
        EventType::Warning,
        "Failed",
        format!("Error: {}", why.reason),
    );
    Unavailable { why, retry }
}

/// The event's reason and text, and the waiting reason, in the words of upstream's
/// `image_manager.go` at v1.37.
fn told(error: &ImageError) -> (&'static str, String, StatusReason) {
    let cause = ErrorChain(error).to_string();
    let (waiting, event, text, message) = match error {
        ImageError::InvalidName { reference, .. } => {
            let text = format!("Failed to apply default image tag \"{reference}\": {cause}");
            ("InvalidImageName", "InspectFailed", text.clone(), text)
        }
        ImageError::NeverPull { reference } => {
            let text =
                format!("Container image \"{reference}\" is not present with pull policy of Never");
            ("ErrImageNeverPull", "ErrImageNeverPull", text.clone(), text)
        }
        ImageError::NeverPullForeign { reference } => {
            let text = format!(
                "Container image \"{reference}\" is present with pull policy of Never but does not have the proper credentials"
            );
            ("ErrImageNeverPull", "ErrImageNeverPull", text.clone(), text)
        }
        ImageError::Pull { reference, message } => {
            let text = format!("Failed to pull image \"{reference}\": {message}");
            ("ErrImagePull", "Failed", text, cause)
        }
        ImageError::Store { .. } => (
            "ImageInspectError",
            "InspectFailed",
            format!("Failed to inspect image: {cause}"),
            cause,
        ),
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
mod tests {
    use super::*;

    #[test]
    fn images_are_missed_in_upstreams_words() {
        let reference = || "A/b:c".to_owned();
        let why = "invalid reference format: repository name must be lowercase".to_owned();
        for (error, waiting, event, text) in [
            (
                ImageError::InvalidName {
                    reference: reference(),
                    why,
                },
                "InvalidImageName",
                "InspectFailed",
                "Failed to apply default image tag \"A/b:c\": couldn't parse image name \"A/b:c\": \
                 invalid reference format: repository name must be lowercase",
            ),
            (
                ImageError::NeverPull {
                    reference: reference(),
                },
                "ErrImageNeverPull",
                "ErrImageNeverPull",
                "Container image \"A/b:c\" is not present with pull policy of Never",
            ),
            (
                ImageError::Pull {
                    reference: reference(),
                    message: "r.test: not found".to_owned(),
                },
                "ErrImagePull",
                "Failed",
                "Failed to pull image \"A/b:c\": r.test: not found",
            ),
        ] {
            let told = told(&error);
            assert_eq!((told.0, &*told.1, &*told.2.reason), (event, text, waiting));
        }
    }

    #[test]
    fn moving_tags_are_pulled_always() {
        for (reference, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("r.test:5000/nginx", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("r.test:5000/a/nginx:1.25", "IfNotPresent"),
            ("nginx@sha256:0", "IfNotPresent"),
        ] {
            assert_eq!(default_policy(reference), policy, "{reference}");
        }
    }
}
