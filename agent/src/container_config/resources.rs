//! Requests and limits as cgroup values, QoS and the cgroup's place (pure).
//!
//! Source: upstream `pkg/kubelet/cm/helpers_linux.go`, `pkg/kubelet/qos/policy.go` at v1.37.

mod amounts;

pub(crate) use self::amounts::{Amounts, limit, pod_amounts, pod_limit, request};

use std::collections::BTreeMap;

use coracle_api::{
    qos::QosClass,
    quantity::{Format, Quantity as Amount},
    scheduling::is_sidecar,
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use self::amounts::{of_whole, unclaimed_memory};
use crate::{
    node::facts::PodsShare,
    pod::{PodExt, SYSTEM_CRITICAL},
    runtime::types::Resources,
};

const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
const PERIOD_US: u64 = 100_000;
const MIN_QUOTA_US: i64 = 1000;
const GUARANTEED_SCORE: i32 = -997;

/// Where a pod's cgroup is, below each hierarchy's mount.
pub(crate) fn cgroup_parent(root: &str, pod: &Pod) -> String {
    let class = match pod.qos_class() {
        QosClass::Guaranteed => "",
        QosClass::Burstable => "/burstable",
        QosClass::BestEffort => "/besteffort",
    };
    format!(
        "{}/kubepods{class}/pod{}",
        root.trim_end_matches('/'),
        pod.uid()
    )
}

/// Limits of one container.
pub(crate) fn for_container(pod: &Pod, container: &Container, memory_capacity: i64) -> Resources {
    let score = oom_score_adj(pod, container, memory_capacity);
    Resources {
        oom_score_adj: Some(score),
        ..limits_of(pod, container)
    }
}

/// Those that may change while it runs. A container without a limit has its pod's, so that what
/// runs in it sees one.
pub(crate) fn limits_of(pod: &Pod, container: &Container) -> Resources {
    let amounts = Amounts::of(container.resources.as_ref());
    let whole = of_whole(pod);
    Resources {
        cpu_shares: Some(shares(amounts.cpu_request)),
        cpu_quota_us: amounts.cpu_limit.or(whole.cpu_limit).map(quota),
        cpu_period_us: Some(PERIOD_US),
        memory_limit_bytes: amounts.memory_limit.or(whole.memory_limit),
        ..Resources::default()
    }
}

/// In what a cgroup differs from what is wanted of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) cpu: bool,
    pub(crate) memory: bool,
}

impl Difference {
    /// Shares are always written: a cgroup without them is one of which nothing is known.
    pub(crate) fn between(wanted: &Resources, actual: &Resources) -> Self {
        let known = actual.cpu_shares.is_some();
        let cpu =
            wanted.cpu_shares != actual.cpu_shares || wanted.cpu_quota_us != actual.cpu_quota_us;
        Self {
            cpu: known && cpu,
            memory: known && wanted.memory_limit_bytes != actual.memory_limit_bytes,
        }
    }

    pub(crate) fn any(self) -> bool {
        self.cpu || self.memory
    }
}

/// Limits that admit what either admits.
pub(crate) fn wider(one: &Resources, other: &Resources) -> Resources {
    fn most<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.zip(other).map(|(one, other)| one.max(other))
    }
    Resources {
        cpu_shares: one.cpu_shares.max(other.cpu_shares),
        cpu_quota_us: most(one.cpu_quota_us, other.cpu_quota_us),
        memory_limit_bytes: most(one.memory_limit_bytes, other.memory_limit_bytes),
        ..one.clone()
    }
}

/// What a container has: its requirements, but for what its cgroup says otherwise.
pub(crate) fn in_effect(
    pod: &Pod,
    container: &Container,
    actual: Option<&Resources>,
) -> ResourceRequirements {
    let mut known = container.resources.clone().unwrap_or_default();
    let Some(actual) = actual else { return known };
    let difference = Difference::between(&limits_of(pod, container), actual);
    if difference.cpu {
        let milli = actual
            .cpu_quota_us
            .map(|quota| Amount::from_milli(quota / 100));
        set(&mut known.limits, "cpu", milli.map(written));
        if known
            .requests
            .as_ref()
            .is_some_and(|requests| requests.contains_key("cpu"))
        {
            let shares = i64::try_from(actual.cpu_shares.unwrap_or(0)).unwrap_or(0);
            set(
                &mut known.requests,
                "cpu",
                Some(written(Amount::from_milli((shares * 1000 + 1023) / 1024))),
            );
        }
    }
    if difference.memory {
        let bytes = actual
            .memory_limit_bytes
            .map(|bytes| Amount::from_units(bytes, Format::BinarySi));
        set(&mut known.limits, "memory", bytes.map(written));
    }
    known
}

fn written(amount: Amount) -> Quantity {
    Quantity(amount.to_string())
}

/// Puts one amount into a list that may not exist yet, or takes it out.
pub(crate) fn set(
    list: &mut Option<BTreeMap<String, Quantity>>,
    name: &str,
    amount: Option<Quantity>,
) {
    match amount {
        Some(amount) => drop(list.get_or_insert_default().insert(name.to_owned(), amount)),
        None => drop(list.as_mut().and_then(|list| list.remove(name))),
    }
}

/// Limits of the pod as a whole.
pub(crate) fn for_pod(pod: &Pod) -> Resources {
    let total = pod_amounts(pod);
    let bounded = pod.qos_class() != QosClass::BestEffort;
    Resources {
        cpu_shares: Some(if bounded {
            shares(total.cpu_request)
        } else {
            MIN_SHARES
        }),
        cpu_quota_us: total.cpu_limit.filter(|_| bounded).map(quota),
        cpu_period_us: Some(PERIOD_US),
        memory_limit_bytes: total.memory_limit.filter(|_| bounded),
        pids_limit: None,
        oom_score_adj: None,
    }
}

fn shares(milli_cpu: i64) -> u64 {
    let shares = u64::try_from(milli_cpu).unwrap_or(0).saturating_mul(1024) / 1000;
    shares.clamp(MIN_SHARES, MAX_SHARES)
}

fn quota(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(100)).max(MIN_QUOTA_US)
}

/// Who of a class asks for more memory is ended later.
///
/// Source: `GetContainerOOMScoreAdjust` in `pkg/kubelet/qos/policy.go` at v1.37.
fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i32 {
    if pod
        .spec_or_default()
        .priority
        .is_some_and(|priority| priority >= SYSTEM_CRITICAL)
    {
        return GUARANTEED_SCORE;
    }
    let score = |memory_request: i64| {
        let share = memory_request.saturating_mul(1000) / memory_capacity.max(1);
        1000 - i32::try_from(share).unwrap_or(1000)
    };
    match pod.qos_class() {
        QosClass::Guaranteed => GUARANTEED_SCORE,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let asked =
                |container: &Container| Amounts::of(container.resources.as_ref()).memory_request;
            let unclaimed = unclaimed_memory(pod);
            let mut own = score(asked(container).saturating_add(unclaimed));
            // A sidecar does not go before the least of those that it serves.
            if is_sidecar(container)
                && pod
                    .init_containers()
                    .iter()
                    .any(|init| init.name == container.name)
            {
                let least = pod.containers().iter().map(asked).min().unwrap_or(0);
                own = own.min(score(least.saturating_add(unclaimed)));
            }
            // Above every guaranteed container, below every best-effort one.
            own.clamp(1000 + GUARANTEED_SCORE, 999)
        }
    }
}

/// Where the classes' cgroups are, and what each is to have: the node's share for all pods, what
/// burstable pods ask for together, and the least there is for those that ask for nothing.
/// Guaranteed pods are beside the two and weigh by themselves.
///
/// Source: `setCPUCgroupConfig` in `pkg/kubelet/cm/qos_container_manager_linux.go` at v1.37.
pub(crate) fn of_classes<'a>(
    root: &str,
    share: PodsShare,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> [(String, Resources); 3] {
    let burstable = pods
        .into_iter()
        .filter(|pod| pod.qos_class() == QosClass::Burstable);
    let asked = burstable.fold(0_i64, |sum, pod| {
        sum.saturating_add(pod_amounts(pod).cpu_request)
    });
    let all = format!("{}/kubepods", root.trim_end_matches('/'));
    let weight = |shares| Resources {
        cpu_shares: Some(shares),
        ..Resources::default()
    };
    let (burstable, besteffort) = (format!("{all}/burstable"), format!("{all}/besteffort"));
    let node = Resources {
        memory_limit_bytes: Some(share.memory_bytes).filter(|&bytes| bytes > 0),
        pids_limit: share.pids,
        ..weight(shares(share.cpu_millis))
    };
    [
        (all, node),
        (burstable, weight(shares(asked))),
        (besteffort, weight(MIN_SHARES)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec}),
        )
        .expect("pod")
    }

    fn one(resources: serde_json::Value) -> Pod {
        pod(serde_json::json!({"containers": [{"name": "a", "resources": resources}]}))
    }

    #[test]
    fn cgroups_follow_the_qos_class() {
        let cases = [
            (serde_json::json!({}), "/r/kubepods/besteffort/podu"),
            (
                serde_json::json!({"requests": {"cpu": "1"}}),
                "/r/kubepods/burstable/podu",
            ),
            (
                serde_json::json!({"limits": {"cpu": "1", "memory": "1Mi"}, "requests": {"cpu": "1", "memory": "1Mi"}}),
                "/r/kubepods/podu",
            ),
        ];
        for (resources, expected) in cases {
            assert_eq!(cgroup_parent("/r", &one(resources)), expected);
        }
        assert_eq!(
            cgroup_parent("/", &one(serde_json::json!({}))),
            "/kubepods/besteffort/podu"
        );
    }

    #[test]
    fn containers_get_shares_quota_limit_and_score() {
        let cases = [
            (serde_json::json!({}), (2, None, None, 1000)),
            (
                serde_json::json!({"requests": {"cpu": "250m", "memory": "1Gi"}}),
                (256, None, None, 750),
            ),
            (
                serde_json::json!({"limits": {"cpu": "500m"}}),
                (512, Some(50_000), None, 999),
            ),
            (
                serde_json::json!({"limits": {"cpu": "1m", "memory": "1Gi"}, "requests": {"cpu": "1m", "memory": "1Gi"}}),
                (2, Some(1000), Some(GIB), -997),
            ),
            (
                serde_json::json!({"requests": {"memory": "4Gi"}}),
                (2, None, None, 3),
            ),
        ];
        for (resources, (shares, quota, limit, score)) in cases {
            let pod = one(resources.clone());
            let got = for_container(&pod, &pod.containers()[0], 4 * GIB);
            assert_eq!(
                (
                    got.cpu_shares,
                    got.cpu_quota_us,
                    got.memory_limit_bytes,
                    got.oom_score_adj
                ),
                (Some(shares), quota, limit, Some(score)),
                "{resources}"
            );
        }
    }

    #[test]
    fn container_tells_what_its_cgroup_has() {
        let pod = one(
            serde_json::json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}),
        );
        let container = &pod.containers()[0];
        let wanted = limits_of(&pod, container);
        assert_eq!(
            Some(in_effect(&pod, container, Some(&wanted))),
            container.resources
        );
        let small = Resources {
            cpu_shares: Some(102),
            memory_limit_bytes: None,
            ..wanted
        };
        let expected = serde_json::json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}});
        assert_eq!(
            serde_json::to_value(in_effect(&pod, container, Some(&small))).expect("JSON"),
            expected
        );
    }

    #[test]
    fn wider_limits_admit_both() {
        let of = |shares, quota, memory| Resources {
            cpu_shares: Some(shares),
            cpu_quota_us: quota,
            memory_limit_bytes: memory,
            ..Resources::default()
        };
        assert_eq!(
            wider(&of(2, Some(5), Some(7)), &of(3, Some(4), Some(8))),
            of(3, Some(5), Some(8))
        );
        assert_eq!(
            wider(&of(2, None, Some(7)), &of(1, Some(4), None)),
            of(2, None, None)
        );
    }

    #[test]
    fn pod_limits_exist_only_if_every_container_has_one() {
        let half = pod(serde_json::json!({"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}]}));
        let got = for_pod(&half);
        assert_eq!(
            (got.cpu_quota_us, got.memory_limit_bytes),
            (Some(200_000), None)
        );
    }

    #[test]
    fn init_containers_raise_the_pods_limits() {
        let pod = pod(serde_json::json!({
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "3", "memory": "3Gi"}}}],
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}));
        let got = for_pod(&pod);
        assert_eq!(
            (got.cpu_quota_us, got.memory_limit_bytes),
            (Some(300_000), Some(3 * GIB))
        );
    }

    #[test]
    fn what_is_said_of_the_pod_bounds_it_and_its_containers() {
        let spec = serde_json::json!({
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
            "containers": [
                {"name": "a", "resources": {"requests": {"memory": "256Mi"}, "limits": {"cpu": "500m"}}},
                {"name": "b"}]});
        let pod = pod(spec);
        assert_eq!(cgroup_parent("/", &pod), "/kubepods/burstable/podu");
        let whole = for_pod(&pod);
        let got = (
            whole.cpu_shares,
            whole.cpu_quota_us,
            whole.memory_limit_bytes,
        );
        assert_eq!(got, (Some(1024), Some(200_000), Some(2 * GIB)));
        let of = |index: usize| for_container(&pod, &pod.containers()[index], 4 * GIB);
        assert_eq!(
            (of(0).cpu_quota_us, of(0).memory_limit_bytes),
            (Some(50_000), Some(2 * GIB))
        );
        assert_eq!(
            (of(1).cpu_quota_us, of(1).memory_limit_bytes),
            (Some(200_000), Some(2 * GIB))
        );
        // 768 of the 1024 Mi are nobody's: half of them each.
        assert_eq!(
            (of(0).oom_score_adj, of(1).oom_score_adj),
            (Some(1000 - 156), Some(1000 - 93))
        );
    }

    #[test]
    fn a_limit_of_the_pod_is_its_request_where_nobody_asks() {
        let limits = serde_json::json!({"limits": {"cpu": "2", "memory": "1Gi"}});
        let silent = pod(serde_json::json!({"resources": limits, "containers": [{"name": "a"}]}));
        assert_eq!(pod_amounts(&silent).cpu_request, 2000);
        let asking = serde_json::json!([{"name": "a", "resources": {"requests": {"cpu": "300m"}}}]);
        let asking = pod(serde_json::json!({"resources": limits, "containers": asking}));
        assert_eq!(pod_amounts(&asking).cpu_request, 300);
    }

    #[test]
    fn overhead_is_part_of_the_pod() {
        let resources = serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let pod = pod(
            serde_json::json!({"overhead": {"cpu": "250m", "memory": "64Mi"},
            "containers": [{"name": "a", "resources": resources}]}),
        );
        let got = for_pod(&pod);
        let expected = (Some(1280), Some(125_000), Some(GIB + (64 << 20)));
        assert_eq!(
            (got.cpu_shares, got.cpu_quota_us, got.memory_limit_bytes),
            expected
        );
        assert_eq!(pod_amounts(&pod).memory_request, GIB + (64 << 20));
    }

    #[test]
    fn sidecars_go_no_sooner_than_those_they_serve() {
        let asks = |memory: &str| serde_json::json!({"requests": {"memory": memory}});
        let pod = pod(serde_json::json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": asks("1Mi")}],
            "containers": [{"name": "a", "resources": asks("1Gi")}, {"name": "b", "resources": asks("2Gi")}]}));
        assert_eq!(
            for_container(&pod, &pod.init_containers()[0], 4 * GIB).oom_score_adj,
            Some(750)
        );
    }

    #[test]
    fn classes_weigh_what_their_pods_ask_for() {
        let share = PodsShare {
            cpu_millis: 4000,
            memory_bytes: 8 * GIB,
            pids: Some(1000),
        };
        let asks = |cpu: &str| one(serde_json::json!({"requests": {"cpu": cpu}}));
        let both = serde_json::json!({"cpu": "2", "memory": "1Gi"});
        let guaranteed = one(serde_json::json!({"limits": both, "requests": both}));
        let pods = [
            asks("500m"),
            asks("1500m"),
            guaranteed,
            one(serde_json::json!({})),
        ];
        let got =
            of_classes("/r/", share, &pods).map(|(path, resources)| (path, resources.cpu_shares));
        let expected = [
            ("/r/kubepods", 4096),
            ("/r/kubepods/burstable", 2048),
            ("/r/kubepods/besteffort", 2),
        ];
        assert_eq!(
            got,
            expected.map(|(path, shares)| (path.to_owned(), Some(shares)))
        );
        let [(_, all), (_, burstable), (path, besteffort)] = of_classes("/", share, &[]);
        assert_eq!(
            (all.memory_limit_bytes, all.pids_limit),
            (Some(8 * GIB), Some(1000))
        );
        assert_eq!(
            (burstable.cpu_shares, besteffort.cpu_shares, path.as_str()),
            (Some(2), Some(2), "/kubepods/besteffort")
        );
    }
}
