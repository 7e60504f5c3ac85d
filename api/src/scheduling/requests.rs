//! What a pod asks for altogether: its containers and sidecars together, or more where an init
//! container needs more; what the pod asks for as a whole instead; and what running it costs
//! besides.
//!
//! Source: `PodRequests` and `PodLimits` in `k8s.io/component-helpers/resource/helpers.go` at
//! v1.37.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};
use serde_json::Value;

use super::{is_sidecar, is_sidecar_json};
use crate::{
    meta,
    resource_list::{Amounts, add, amounts, amounts_of_json, raise},
};

/// What a pod with this `spec` asks for.
#[must_use]
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let of = |container: &Container| requests_of(container).unwrap_or_default();
    let mut total = of_containers(spec, of);
    put_whole_and_overhead(&mut total, spec);
    total
}

/// What a pod takes on its node: what it asks for or, while that changes, what it still has, if
/// that is more. A resize that the node refuses counts for nothing. A container that leaves one of
/// `unsaid` unsaid counts with that.
#[must_use]
pub fn pod_requests_in_force(pod: &Pod, unsaid: &Amounts) -> Amounts {
    let Some(spec) = pod.spec.as_ref() else {
        return Amounts::new();
    };
    let refused = is_resize_infeasible(pod);
    let sum = |of: &dyn Fn(&Container, Option<&ContainerStatus>) -> Option<Amounts>| {
        of_containers(spec, |container| {
            let mut own = of(container, status_of(pod, container)).unwrap_or_default();
            for (name, amount) in unsaid {
                own.entry(name.clone()).or_insert(*amount);
            }
            own
        })
    };
    let wanted = |container: &Container| requests_of(container).filter(|_| !refused);
    let allocated =
        |status: Option<&ContainerStatus>| status?.allocated_resources.as_ref().map(amounts);
    let actuated = |status: Option<&ContainerStatus>| {
        status?.resources.as_ref()?.requests.as_ref().map(amounts)
    };
    let mut total = sum(&|container, status| allocated(status).or_else(|| wanted(container)));
    raise(
        &mut total,
        &sum(&|container, status| {
            actuated(status)
                .or_else(|| allocated(status))
                .or_else(|| wanted(container))
        }),
    );
    if !refused {
        raise(&mut total, &sum(&|container, _| requests_of(container)));
    }
    put_whole_and_overhead(&mut total, spec);
    total
}

/// What a pod may use at most: what its limits are or, while they change, what they still are, if
/// that is more. A resize that the node refuses counts for nothing.
#[must_use]
pub fn pod_limits_in_force(pod: &Pod) -> Amounts {
    let Some(spec) = pod.spec.as_ref() else {
        return Amounts::new();
    };
    let refused = is_resize_infeasible(pod);
    let limits =
        |resources: &Option<ResourceRequirements>| resources.as_ref()?.limits.as_ref().map(amounts);
    let mut total = of_containers(spec, |container| {
        let wanted = limits(&container.resources).unwrap_or_default();
        let actuated = status_of(pod, container).and_then(|status| limits(&status.resources));
        let Some(mut limits) = actuated else {
            return wanted;
        };
        if !refused {
            raise(&mut limits, &wanted);
        }
        limits
    });
    let whole = spec.resources.as_ref();
    let whole = whole.and_then(|whole| whole.limits.as_ref());
    put_whole(&mut total, whole.map(amounts).unwrap_or_default());
    put_overhead_of_limits(
        &mut total,
        &spec.overhead.as_ref().map(amounts).unwrap_or_default(),
    );
    total
}

/// What a pod with this `spec`, held as JSON, asks for.
#[must_use]
pub fn pod_requests_of_json(spec: &Value) -> Amounts {
    let mut total = of_containers_json(spec, "requests");
    put_whole(&mut total, amounts_of_json(&spec["resources"]["requests"]));
    add(&mut total, &amounts_of_json(&spec["overhead"]));
    total
}

/// What a pod with this `spec`, held as JSON, may use at most; overhead is added where there is a
/// limit.
#[must_use]
pub fn pod_limits_of_json(spec: &Value) -> Amounts {
    let mut total = of_containers_json(spec, "limits");
    put_whole(&mut total, amounts_of_json(&spec["resources"]["limits"]));
    put_overhead_of_limits(&mut total, &amounts_of_json(&spec["overhead"]));
    total
}

/// What containers need together at the moment when they need most: `init` with whether each is a
/// sidecar, in their order, then `containers`. An init container runs beside the sidecars before it
/// alone; containers run beside all sidecars.
pub fn peak<T: Clone>(
    none: T,
    init: impl IntoIterator<Item = (T, bool)>,
    containers: impl IntoIterator<Item = T>,
    plus: impl Fn(T, &T) -> T,
    larger: impl Fn(T, &T) -> T,
) -> T {
    let (mut sidecars, mut most) = (none.clone(), none);
    for (own, is_sidecar) in init {
        let at_once = plus(sidecars.clone(), &own);
        most = larger(most, &at_once);
        if is_sidecar {
            sidecars = at_once;
        }
    }
    let running = containers
        .into_iter()
        .fold(sidecars, |sum, own| plus(sum, &own));
    larger(running, &most)
}

fn of_lists(
    init: impl IntoIterator<Item = (Amounts, bool)>,
    containers: impl IntoIterator<Item = Amounts>,
) -> Amounts {
    let plus = |mut sum: Amounts, more: &Amounts| {
        add(&mut sum, more);
        sum
    };
    let larger = |mut one: Amounts, other: &Amounts| {
        raise(&mut one, other);
        one
    };
    peak(Amounts::new(), init, containers, plus, larger)
}

fn of_containers(spec: &PodSpec, of: impl Fn(&Container) -> Amounts) -> Amounts {
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| (of(container), is_sidecar(container)));
    of_lists(init, spec.containers.iter().map(&of))
}

fn of_containers_json(spec: &Value, list: &str) -> Amounts {
    let of = |container: &Value| amounts_of_json(&container["resources"][list]);
    let init = meta::get_array(spec, &["initContainers"]);
    let init = init
        .iter()
        .map(|container| (of(container), is_sidecar_json(container)));
    of_lists(init, meta::get_array(spec, &["containers"]).iter().map(of))
}

fn requests_of(container: &Container) -> Option<Amounts> {
    container.resources.as_ref()?.requests.as_ref().map(amounts)
}

fn put_whole_and_overhead(total: &mut Amounts, spec: &PodSpec) {
    let whole = spec
        .resources
        .as_ref()
        .and_then(|whole| whole.requests.as_ref());
    put_whole(total, whole.map(amounts).unwrap_or_default());
    add(
        total,
        &spec.overhead.as_ref().map(amounts).unwrap_or_default(),
    );
}

/// What running the pod costs besides is added where there is a limit.
fn put_overhead_of_limits(total: &mut Amounts, overhead: &Amounts) {
    for (name, more) in overhead {
        if let Some(sum) = total.get_mut(name).filter(|sum| !sum.is_zero()) {
            *sum += *more;
        }
    }
}

/// What is said for the whole pod stands for all its containers, where it can be said.
fn put_whole(total: &mut Amounts, whole: Amounts) {
    let supported =
        |name: &str| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
    total.extend(whole.into_iter().filter(|(name, _)| supported(name)));
}

fn status_of<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut statuses = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    statuses.find(|status| status.name == container.name)
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

#[cfg(test)]
mod tests;
