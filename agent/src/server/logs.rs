//! `/containerLogs/<namespace>/<pod>/<container>`.

use std::{
    io::ErrorKind,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::{api::core::v1::PodStatus, jiff::Timestamp};
use tokio::sync::mpsc;

use super::{
    ServerContext,
    query::Query,
    reply::{self, Body, ReplyError},
};
use crate::{
    logs::read::{self, LogReader, Options},
    runtime::types::{ContainerId, ContainerState, ContainerStatus},
};

/// Pieces on the way to a slow reader: 8 of 64 KiB.
const PIECES: usize = 8;

pub(super) async fn serve(
    server: &ServerContext,
    request: &Request<Incoming>,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<Response<Body>, ReplyError> {
    let query = Query::parse(request.uri().query());
    let options = options(&query)?;
    let previous = query.flag(&["previous"]);
    let instances = server.find_container(namespace, pod, container).await?;
    let known = server.known_status(namespace, pod);
    let waiting = known
        .as_ref()
        .and_then(|status| waiting_reason(status, container));
    let status = choose(&instances, previous, pod, container, waiting)?.clone();
    let path = status.log_path.clone();
    let follow = options.follow;
    let opened = tokio::task::spawn_blocking(move || LogReader::open(path, options)).await;
    let reader = match opened {
        Ok(Ok(reader)) => reader,
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
            return Ok(reply::text(StatusCode::OK, ""));
        }
        Ok(Err(error)) => return Err(ReplyError::internal(&error)),
        Err(error) => return Err(ReplyError::internal(&error)),
    };
    let (out, pieces) = mpsc::channel::<Bytes>(PIECES);
    let runtime = server.ctx.runtime.clone();
    let (uid, id) = (status.pod.uid.clone(), status.id.clone());
    let ended = move || {
        let (runtime, uid, id) = (runtime.clone(), uid.clone(), id.clone());
        async move {
            !follow
                || is_over(
                    runtime
                        .pod_state(&uid)
                        .await
                        .map(|(_, containers)| containers)
                        .unwrap_or_default(),
                    &id,
                )
        }
    };
    // Ends when the log does, or with its receiver.
    drop(coracle_telemetry::spawn(
        "logs",
        read::stream(reader, out, ended),
    ));
    Ok(reply::streamed(pieces))
}

fn is_over(containers: Vec<ContainerStatus>, id: &ContainerId) -> bool {
    containers
        .iter()
        .find(|c| c.id == *id)
        .is_none_or(|c| matches!(c.state, ContainerState::Exited { .. }))
}

/// The instance whose log is meant.
fn choose<'a>(
    instances: &'a [ContainerStatus],
    previous: bool,
    pod: &str,
    container: &str,
    waiting: Option<&str>,
) -> Result<&'a ContainerStatus, ReplyError> {
    let mut started = instances
        .iter()
        .filter(|c| !matches!(c.state, ContainerState::Created));
    if previous {
        // A container that waits for its restart has its last instance as the newest.
        let running = matches!(
            instances.first().map(|c| &c.state),
            Some(ContainerState::Running { .. })
        );
        let found = if running || instances.len() > 1 {
            started.nth(1)
        } else {
            started.next()
        };
        return found.ok_or_else(|| {
            ReplyError::bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{pod}\" not found"
            ))
        });
    }
    started.next().ok_or_else(|| {
        ReplyError::bad_request(format!(
            "container \"{container}\" in pod \"{pod}\" is waiting to start: {}",
            in_words(waiting.unwrap_or("ContainerCreating"))
        ))
    })
}

/// Why the container waits, if it does.
fn waiting_reason<'a>(status: &'a PodStatus, container: &str) -> Option<&'a str> {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let own = lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container)?;
    own.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

/// Source: `validateContainerLogStatus` in `pkg/kubelet/kubelet_pods.go` at v1.37.
fn in_words(reason: &str) -> &str {
    match reason {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    }
}

fn options(query: &Query) -> Result<Options, ReplyError> {
    let number = |name: &str| match query.get(name) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            ReplyError::bad_request(format!("{name} must be a number of 0 or more: {text:?}"))
        }),
    };
    let since = match (number("sinceSeconds")?, query.get("sinceTime")) {
        // Before the clock's first second there is nothing: then all of the log is wanted.
        (Some(seconds), _) => SystemTime::now().checked_sub(Duration::from_secs(seconds)),
        (None, Some(time)) => {
            let time = time.parse::<Timestamp>().map_err(|_| {
                ReplyError::bad_request(format!("sinceTime must be an RFC 3339 time: {time:?}"))
            })?;
            Some(time.into())
        }
        (None, None) => None,
    };
    Ok(Options {
        follow: query.flag(&["follow"]),
        tail_lines: number("tailLines")?.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
        since,
        timestamps: query.flag(&["timestamps"]),
        limit_bytes: number("limitBytes")?,
        only_stderr: match query.get("stream") {
            Some("Stdout") => Some(false),
            Some("Stderr") => Some(true),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn logs_of_a_container_that_waits_say_what_for() {
        let waits = |name: &str, reason: &str| {
            json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason}}})
        };
        let status: PodStatus = serde_json::from_value(json!({
            "initContainerStatuses": [waits("i", "PodInitializing")],
            "containerStatuses": [waits("a", "ImagePullBackOff"), waits("b", "ErrImagePull"), waits("c", "CrashLoopBackOff")]}))
        .expect("status");
        for (container, expected) in [
            ("i", "PodInitializing"),
            ("a", "trying and failing to pull image"),
            ("b", "image can't be pulled"),
            ("c", "CrashLoopBackOff"),
            ("none", "ContainerCreating"),
        ] {
            let refused = choose(
                &[],
                false,
                "p",
                container,
                waiting_reason(&status, container),
            )
            .expect_err("waits");
            let expected =
                format!("container \"{container}\" in pod \"p\" is waiting to start: {expected}");
            assert!(
                format!("{refused:?}").contains(&format!("{expected:?}")),
                "{refused:?}"
            );
        }
    }
}
