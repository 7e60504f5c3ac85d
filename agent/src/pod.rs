//! Small questions about a Pod object, answered without I/O.
//!
//! The agent works on `k8s_openapi`'s Pod; this module hides where its many optional fields default to what.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use k8s_openapi::{
    api::core::v1::{Container, EphemeralContainer, Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use crate::runtime::types::{PodRef, PodUid};

/// Grace period of a pod that names none.
pub(crate) const DEFAULT_GRACE_SECS: i64 = 30;

static NO_SPEC: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
static NO_STATUS: LazyLock<PodStatus> = LazyLock::new(PodStatus::default);

/// Priority of `system-cluster-critical`; pods from here on are the system's own.
pub(crate) const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// `spec.restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// `status.qosClass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// An ephemeral container in the form of others: what it cannot have is left out.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let one = ephemeral.clone();
    Container {
        name: one.name,
        image: one.image,
        image_pull_policy: one.image_pull_policy,
        command: one.command,
        args: one.args,
        working_dir: one.working_dir,
        env: one.env,
        env_from: one.env_from,
        volume_mounts: one.volume_mounts,
        volume_devices: one.volume_devices,
        security_context: one.security_context,
        stdin: one.stdin,
        stdin_once: one.stdin_once,
        tty: one.tty,
        termination_message_path: one.termination_message_path,
        termination_message_policy: one.termination_message_policy,
        ..Container::default()
    }
}

/// What the agent asks a Pod.
pub(crate) trait PodExt {
    fn uid(&self) -> PodUid;
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn reference(&self) -> PodRef;
    fn spec_or_default(&self) -> &PodSpec;
    fn status_or_default(&self) -> &PodStatus;
    /// Asked to go by the API.
    fn is_deleting(&self) -> bool;
    fn grace_period_secs(&self) -> i64;
    fn restart_policy(&self) -> RestartPolicy;
    fn qos_class(&self) -> QosClass;
    fn init_containers(&self) -> &[Container];
    fn containers(&self) -> &[Container];
    /// Containers that were added for debugging, in the form of others.
    fn ephemeral_containers(&self) -> Vec<Container>;
    /// Init and ordinary containers, in the order of their start.
    fn all_containers(&self) -> impl Iterator<Item = &Container>;
    fn container(&self, name: &str) -> Option<&Container>;
    fn host_network(&self) -> bool;
    /// The phase is final: nothing runs for this pod ever again.
    fn is_phase_final(&self) -> bool;
    /// `name_namespace(uid)`, as upstream names pods in messages.
    fn display(&self) -> String;
}

impl PodExt for Pod {
    fn uid(&self) -> PodUid {
        PodUid(self.metadata.uid.clone().unwrap_or_default())
    }

    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or("default")
    }

    fn reference(&self) -> PodRef {
        PodRef { namespace: self.namespace().to_owned(), name: self.name().to_owned(), uid: self.uid() }
    }

    fn spec_or_default(&self) -> &PodSpec {
        self.spec.as_ref().unwrap_or(&NO_SPEC)
    }

    fn status_or_default(&self) -> &PodStatus {
        self.status.as_ref().unwrap_or(&NO_STATUS)
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn grace_period_secs(&self) -> i64 {
        let asked = self.metadata.deletion_grace_period_seconds.filter(|_| self.is_deleting());
        let own = self.spec_or_default().termination_grace_period_seconds;
        asked.or(own).unwrap_or(DEFAULT_GRACE_SECS).max(0)
    }

    fn restart_policy(&self) -> RestartPolicy {
        match self.spec_or_default().restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }

    fn qos_class(&self) -> QosClass {
        let mut any = false;
        let mut guaranteed = true;
        for container in self.all_containers() {
            let resources = container.resources.as_ref();
            for name in ["cpu", "memory"] {
                let of = |map: Option<&std::collections::BTreeMap<String, _>>| {
                    map.and_then(
                        |map: &std::collections::BTreeMap<
                            String,
                            k8s_openapi::apimachinery::pkg::api::resource::Quantity,
                        >| map.get(name).cloned(),
                    )
                    .filter(|quantity| crate::quantity::milli(&quantity.0) > 0)
                };
                let limit = of(resources.and_then(|r| r.limits.as_ref()));
                let request = of(resources.and_then(|r| r.requests.as_ref())).or_else(|| limit.clone());
                any |= limit.is_some() || request.is_some();
                guaranteed &= match (&limit, &request) {
                    (Some(limit), Some(request)) => {
                        crate::quantity::milli(&limit.0) == crate::quantity::milli(&request.0)
                    }
                    _ => false,
                };
            }
        }
        match (any, guaranteed) {
            (false, _) => QosClass::BestEffort,
            (true, true) => QosClass::Guaranteed,
            (true, false) => QosClass::Burstable,
        }
    }

    fn init_containers(&self) -> &[Container] {
        self.spec_or_default().init_containers.as_deref().unwrap_or_default()
    }

    fn containers(&self) -> &[Container] {
        &self.spec_or_default().containers
    }

    fn ephemeral_containers(&self) -> Vec<Container> {
        let containers = self.spec_or_default().ephemeral_containers.iter().flatten();
        containers.map(as_container).collect()
    }

    fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers().iter().chain(self.containers())
    }

    fn container(&self, name: &str) -> Option<&Container> {
        self.all_containers().find(|container| container.name == name)
    }

    fn host_network(&self) -> bool {
        self.spec_or_default().host_network.unwrap_or(false)
    }

    fn is_phase_final(&self) -> bool {
        is_final(self.status_or_default())
    }

    fn display(&self) -> String {
        format!("{}_{}({})", self.name(), self.namespace(), self.metadata.uid.as_deref().unwrap_or_default())
    }
}

/// Whether the phase is final.
pub(crate) fn is_final(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whether an init container is a sidecar: restarted always, started before what follows it, stopped last.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Detects changes that need a new container: upstream hashes name and image only.
pub(crate) fn spec_hash(container: &Container) -> String {
    // FNV-1a: stable over versions of the agent, no secrecy needed.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let image = container.image.as_deref().unwrap_or_default();
    for byte in container.name.bytes().chain([0]).chain(image.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// A point in time as the API writes it.
pub(crate) fn api_time(time: SystemTime) -> Time {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The API has whole seconds; cutting here keeps a status equal to its own echo.
    Time(Timestamp::from_second(i64::try_from(since.as_secs()).unwrap_or(i64::MAX)).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The other way round.
pub(crate) fn system_time(time: &Time) -> SystemTime {
    let seconds = u64::try_from(time.0.as_second()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}),
        )
        .expect("pod")
    }

    #[test]
    fn qos_class_follows_requests_and_limits() {
        let cases = [
            (serde_json::json!([{"name": "a"}]), QosClass::BestEffort),
            (serde_json::json!([{"name": "a", "resources": {"requests": {"cpu": "1"}}}]), QosClass::Burstable),
            (serde_json::json!([{"name": "a", "resources": {"limits": {"cpu": "1"}}}]), QosClass::Burstable),
            (
                serde_json::json!([{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]),
                QosClass::Guaranteed,
            ),
            (
                serde_json::json!([{"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}]),
                QosClass::Burstable,
            ),
            (
                serde_json::json!([{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, {"name": "b"}]),
                QosClass::Burstable,
            ),
            (
                serde_json::json!([{"name": "a", "resources": {"requests": {"ephemeral-storage": "1Gi"}}}]),
                QosClass::BestEffort,
            ),
        ];
        for (containers, expected) in cases {
            assert_eq!(pod(serde_json::json!({"containers": containers})).qos_class(), expected, "{containers}");
        }
    }

    #[test]
    fn hash_changes_with_the_image_only() {
        let one: Container = serde_json::from_value(serde_json::json!({"name": "a", "image": "x"})).expect("container");
        let mut other = one.clone();
        other.args = Some(vec!["-v".to_owned()]);
        assert_eq!(spec_hash(&one), spec_hash(&other));
        other.image = Some("y".to_owned());
        assert_ne!(spec_hash(&one), spec_hash(&other));
    }
}
