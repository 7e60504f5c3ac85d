//! What pods ask for of a resource. Pure.
//!
//! Source: `pkg/controller/podautoscaler/replica_calculator.go` (calculateRequests and what it
//! calls) at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use coracle_api::scheduling::is_sidecar_policy;

use crate::pod::{Asks, Container, Pod, PodSpec};

/// In thousandths, by the name of the pod: of the one container, or else of the whole pod.
///
/// # Errors
/// The text for the user, if one does not say what it asks for.
pub(super) fn requests<'a>(
    pods: &'a [Arc<Pod>],
    container: Option<&str>,
    resource: &str,
) -> Result<BTreeMap<&'a str, i64>, String> {
    let of = |pod: &'a Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let request = pod
            .spec
            .as_ref()
            .map_or(Ok(0), |spec| request(name, spec, container, resource))?;
        Ok((name, request))
    };
    pods.iter().map(of).collect()
}

fn request(
    pod: &str,
    spec: &PodSpec,
    container: Option<&str>,
    resource: &str,
) -> Result<i64, String> {
    if container.is_none()
        && let Some(own) = &spec.requests
    {
        // What the pod does not say for itself is what its containers come to.
        let request = own.of(resource).or_else(|| of_containers(spec, resource));
        return request
            .ok_or_else(|| format!("missing pod-level request for {resource} in Pod {pod}"));
    }
    let mut sum = 0_i64;
    let mut found = false;
    for Asks { name, requests, .. } in running(spec).map(|container| &*container.asks) {
        if container.is_some_and(|wanted| wanted != name) {
            continue;
        }
        found = true;
        let request = requests.of(resource).ok_or_else(|| {
            format!("missing request for {resource} in container {name} of Pod {pod}")
        })?;
        sum = sum.saturating_add(request);
    }
    match container {
        Some(name) if !found => Err(format!("container {name} not found in Pod {pod}")),
        _ => Ok(sum),
    }
}

/// The containers that run together: sidecars among them.
fn running(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(
        spec.init_containers
            .iter()
            .flatten()
            .filter(|init| is_sidecar(init)),
    )
}

fn is_sidecar(init: &Container) -> bool {
    is_sidecar_policy(init.restart_policy.as_deref())
}

/// What all containers need at most at one time.
///
/// Source: `k8s.io/component-helpers/resource/helpers.go` (AggregateContainerRequests) at v1.37.
fn of_containers(spec: &PodSpec, resource: &str) -> Option<i64> {
    let asked = |container: &Container| container.asks.requests.of(resource);
    let together = running(spec).filter_map(asked).reduce(i64::saturating_add);
    let (mut beside, mut most) = (0_i64, None);
    for init in spec.init_containers.iter().flatten() {
        let own = asked(init);
        if is_sidecar(init) {
            beside = beside.saturating_add(own.unwrap_or(0));
        } else {
            most = most.max(own.map(|own| own.saturating_add(beside)));
        }
    }
    together.max(most)
}
