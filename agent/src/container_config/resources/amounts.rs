//! What containers and pods ask for and may have, in plain numbers (pure).

use std::collections::BTreeMap;

use coracle_api::{
    quantity::Quantity as Amount,
    scheduling::{is_sidecar, peak},
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{pod::PodExt, quantity};

/// Requests and limits: thousandths of a CPU, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) cpu_request: i64,
    pub(crate) cpu_limit: Option<i64>,
    pub(crate) memory_request: i64,
    pub(crate) memory_limit: Option<i64>,
}

impl Amounts {
    pub(crate) fn of(resources: Option<&ResourceRequirements>) -> Self {
        let get = |map: Option<&BTreeMap<String, Quantity>>, name: &str, parse: fn(&str) -> i64| {
            map.and_then(|map| map.get(name))
                .map(|q| parse(&q.0))
                .filter(|&value| value > 0)
        };
        let limits = resources.and_then(|r| r.limits.as_ref());
        let requests = resources.and_then(|r| r.requests.as_ref());
        let cpu_limit = get(limits, "cpu", quantity::milli);
        let memory_limit = get(limits, "memory", quantity::value);
        Self {
            cpu_request: get(requests, "cpu", quantity::milli)
                .or(cpu_limit)
                .unwrap_or(0),
            cpu_limit,
            memory_request: get(requests, "memory", quantity::value)
                .or(memory_limit)
                .unwrap_or(0),
            memory_limit,
        }
    }

    /// Limited only if both are.
    pub(crate) fn plus(self, other: Self) -> Self {
        let both = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        Self {
            cpu_request: self.cpu_request.saturating_add(other.cpu_request),
            cpu_limit: both(self.cpu_limit, other.cpu_limit),
            memory_request: self.memory_request.saturating_add(other.memory_request),
            memory_limit: both(self.memory_limit, other.memory_limit),
        }
    }

    fn max(self, other: Self) -> Self {
        let both = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            cpu_request: self.cpu_request.max(other.cpu_request),
            cpu_limit: both(self.cpu_limit, other.cpu_limit),
            memory_request: self.memory_request.max(other.memory_request),
            memory_limit: both(self.memory_limit, other.memory_limit),
        }
    }
}

/// What is said for the pod as a whole.
pub(super) fn of_whole(pod: &Pod) -> Amounts {
    Amounts::of(pod.spec_or_default().resources.as_ref())
}

/// What the pod needs: what is said for it as a whole, else what its containers do; and what
/// running it costs besides.
///
/// Source: `PodRequests` and `PodLimits` in `k8s.io/component-helpers/resource` at v1.37.
pub(crate) fn pod_amounts(pod: &Pod) -> Amounts {
    let (whole, containers) = (of_whole(pod), containers_amounts(pod));
    let said = |amount: i64| Some(amount).filter(|&amount| amount > 0);
    let overhead = pod.spec_or_default().overhead.as_ref();
    let over = |name: &str, parse: fn(&str) -> i64| {
        overhead
            .and_then(|overhead| overhead.get(name))
            .map_or(0, |amount| parse(&amount.0).max(0))
    };
    let (cpu, memory) = (
        over("cpu", quantity::milli),
        over("memory", quantity::value),
    );
    // A limit without a request is the request only where no container asks for anything.
    let request = |own: Option<i64>, containers: i64, limit: Option<i64>| {
        own.or(said(containers)).or(limit).unwrap_or(0)
    };
    let own = pod
        .spec_or_default()
        .resources
        .as_ref()
        .and_then(|whole| whole.requests.as_ref());
    let own = |name: &str, parse: fn(&str) -> i64| {
        own?.get(name).map(|amount| parse(&amount.0)).and_then(said)
    };
    let cpu_request = request(
        own("cpu", quantity::milli),
        containers.cpu_request,
        whole.cpu_limit,
    );
    let memory_request = request(
        own("memory", quantity::value),
        containers.memory_request,
        whole.memory_limit,
    );
    Amounts {
        cpu_request: cpu_request.saturating_add(cpu),
        cpu_limit: whole
            .cpu_limit
            .or(containers.cpu_limit)
            .map(|limit| limit.saturating_add(cpu)),
        memory_request: memory_request.saturating_add(memory),
        memory_limit: whole
            .memory_limit
            .or(containers.memory_limit)
            .map(|limit| limit.saturating_add(memory)),
    }
}

/// What all containers together need: the sum of those that run at once, or more if an init
/// container does.
fn containers_amounts(pod: &Pod) -> Amounts {
    let zero = Amounts {
        cpu_limit: Some(0),
        memory_limit: Some(0),
        ..Amounts::default()
    };
    let of = |container: &Container| Amounts::of(container.resources.as_ref());
    let init = pod
        .init_containers()
        .iter()
        .map(|container| (of(container), is_sidecar(container)));
    peak(
        zero,
        init,
        pod.containers().iter().map(of),
        |sum, own| sum.plus(*own),
        |one, other| one.max(*other),
    )
}

/// A container's part of what the pod as a whole asks for and no container does.
pub(super) fn unclaimed_memory(pod: &Pod) -> i64 {
    let whole = of_whole(pod).memory_request;
    let running = || {
        pod.containers()
            .iter()
            .chain(pod.init_containers().iter().filter(|init| is_sidecar(init)))
    };
    let count = i64::try_from(running().count()).unwrap_or(i64::MAX).max(1);
    let claimed: i64 = running()
        .map(|one| Amounts::of(one.resources.as_ref()).memory_request)
        .sum();
    (whole - claimed).max(0) / count
}

/// What a container asks for of something that is counted in whole units.
pub(crate) fn request(container: &Container, name: &str) -> u64 {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let asked = requests
        .and_then(|requests| requests.get(name))
        .map_or(0, |amount| quantity::value(&amount.0));
    u64::try_from(asked).unwrap_or(0)
}

/// A container's limit of something.
pub(crate) fn limit(container: &Container, name: &str) -> Option<Amount> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    Amount::parse(&limits.get(name)?.0).ok()
}

/// The limit that its containers' limits give a pod, if any of them has one: what those that run at
/// once have together, or more if an init container has.
pub(crate) fn pod_limit(pod: &Pod, name: &str) -> Option<Amount> {
    let sum = |one: Option<Amount>, other: Option<Amount>| match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    };
    let of = |container: &Container| limit(container, name);
    let init = pod
        .init_containers()
        .iter()
        .map(|container| (of(container), is_sidecar(container)));
    peak(
        None,
        init,
        pod.containers().iter().map(of),
        |total, own| sum(total, *own),
        |one, other| one.max(*other),
    )
}
