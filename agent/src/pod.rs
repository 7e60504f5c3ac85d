//! Small questions about a Pod object, answered without I/O.
//!
//! The agent works on `k8s_openapi`'s Pod; this module hides where its many optional fields default
//! to what.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use coracle_api::qos::{self, QosClass};
use k8s_openapi::{
    api::core::v1::{Container, ContainerRestartRule, EphemeralContainer, Pod, PodSpec, PodStatus},
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

impl RestartPolicy {
    /// `Always` unless it is one of the others.
    fn named(name: &str) -> Self {
        match name {
            "Never" => Self::Never,
            "OnFailure" => Self::OnFailure,
            _ => Self::Always,
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
    /// As the API server has told; the same function tells it of a pod that has no status yet.
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
        PodRef {
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            uid: self.uid(),
        }
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
        let asked = self
            .metadata
            .deletion_grace_period_seconds
            .filter(|_| self.is_deleting());
        let own = self.spec_or_default().termination_grace_period_seconds;
        asked.or(own).unwrap_or(DEFAULT_GRACE_SECS).max(0)
    }

    fn restart_policy(&self) -> RestartPolicy {
        RestartPolicy::named(
            self.spec_or_default()
                .restart_policy
                .as_deref()
                .unwrap_or_default(),
        )
    }

    fn qos_class(&self) -> QosClass {
        let told = self
            .status_or_default()
            .qos_class
            .as_deref()
            .and_then(QosClass::from_name);
        told.unwrap_or_else(|| qos::class_of(self.spec_or_default()))
    }

    fn init_containers(&self) -> &[Container] {
        self.spec_or_default()
            .init_containers
            .as_deref()
            .unwrap_or_default()
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
        self.all_containers()
            .find(|container| container.name == name)
    }

    fn host_network(&self) -> bool {
        self.spec_or_default().host_network.unwrap_or(false)
    }

    fn is_phase_final(&self) -> bool {
        is_final(self.status_or_default())
    }

    fn display(&self) -> String {
        format!(
            "{}_{}({})",
            self.name(),
            self.namespace(),
            self.metadata.uid.as_deref().unwrap_or_default()
        )
    }
}

/// Whether the phase is final.
pub(crate) fn is_final(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// The policy of a container: its own, else the pod's.
pub(crate) fn restart_policy(pod: &Pod, container: &Container) -> RestartPolicy {
    container
        .restart_policy
        .as_deref()
        .map_or_else(|| pod.restart_policy(), RestartPolicy::named)
}

/// Whether a container that ended so is started again: if one of its rules says so, else by the
/// policy.
///
/// Source: `ShouldContainerBeRestarted` in `pkg/kubelet/container/helpers.go` at v1.37.
pub(crate) fn restarts_after(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let fits = |rule: &ContainerRestartRule| {
        let on = rule.exit_codes.as_ref();
        let listed =
            on.is_some_and(|on| on.values.iter().flatten().any(|value| *value == exit_code));
        match on.map(|on| on.operator.as_str()) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    };
    let rule = container
        .restart_policy_rules
        .iter()
        .flatten()
        .find(|rule| fits(rule));
    rule.is_some_and(|rule| rule.action == "Restart")
        || match restart_policy(pod, container) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
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
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // The API has whole seconds; cutting here keeps a status equal to its own echo.
    Time(
        Timestamp::from_second(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
            .unwrap_or(Timestamp::UNIX_EPOCH),
    )
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
    fn qos_class_is_what_the_api_server_says() {
        let mut pod = pod(serde_json::json!({"containers": [{"name": "a"}]}));
        assert_eq!(pod.qos_class(), QosClass::BestEffort);
        pod.status.get_or_insert_default().qos_class = Some("Burstable".to_owned());
        assert_eq!(pod.qos_class(), QosClass::Burstable);
    }

    #[test]
    fn rules_come_before_the_containers_policy_and_that_before_the_pods() {
        let rules = |operator: &str| serde_json::json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [42, 43]}}]);
        let cases = [
            (serde_json::json!({}), 1, false),
            (serde_json::json!({"restartPolicy": "OnFailure"}), 1, true),
            (serde_json::json!({"restartPolicy": "OnFailure"}), 0, false),
            (serde_json::json!({"restartPolicy": "Always"}), 0, true),
            (
                serde_json::json!({"restartPolicy": "Never", "restartPolicyRules": rules("In")}),
                42,
                true,
            ),
            (
                serde_json::json!({"restartPolicy": "Never", "restartPolicyRules": rules("In")}),
                1,
                false,
            ),
            (
                serde_json::json!({"restartPolicy": "Never", "restartPolicyRules": rules("NotIn")}),
                1,
                true,
            ),
            (
                serde_json::json!({"restartPolicy": "Never", "restartPolicyRules": rules("NotIn")}),
                43,
                false,
            ),
            (
                serde_json::json!({"restartPolicy": "OnFailure", "restartPolicyRules": rules("In")}),
                1,
                true,
            ),
        ];
        for (mut container, code, expected) in cases {
            container["name"] = "a".into();
            let pod = pod(serde_json::json!({"restartPolicy": "Never", "containers": [container]}));
            assert_eq!(
                restarts_after(&pod, &pod.containers()[0], code),
                expected,
                "{container} {code}"
            );
        }
    }

    #[test]
    fn hash_changes_with_the_image_only() {
        let one: Container = serde_json::from_value(serde_json::json!({"name": "a", "image": "x"}))
            .expect("container");
        let mut other = one.clone();
        other.args = Some(vec!["-v".to_owned()]);
        assert_eq!(spec_hash(&one), spec_hash(&other));
        other.image = Some("y".to_owned());
        assert_ne!(spec_hash(&one), spec_hash(&other));
    }
}
