//! What a Job's `podFailurePolicy` says of a pod that has failed. Pure.
//!
//! Source: `pkg/controller/job/pod_failure_policy.go` at v1.37.

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
};

use crate::pod::{ContainerStatus, Pod};

/// What the first rule says that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// The failure is none.
    Ignore,
    /// As without a policy.
    Count,
    /// The pod's index is not tried again.
    FailIndex,
    /// The Job fails, with this message.
    FailJob(String),
}

/// The rule for a failed pod; `None` if none matches, or there are none. A rule whose action is
/// unknown is as good as not there.
pub(super) fn action(spec: &JobSpec, pod: &Pod) -> Option<Action> {
    let rules = &spec.pod_failure_policy.as_ref()?.rules;
    rules.iter().enumerate().find_map(|(index, rule)| {
        let why = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => exit_code(pod, codes)?,
            (None, Some(patterns)) => condition(pod, patterns)?,
            (None, None) => return None,
        };
        match rule.action.as_str() {
            "Ignore" => Some(Action::Ignore),
            "Count" => Some(Action::Count),
            "FailIndex" => Some(Action::FailIndex),
            "FailJob" => {
                let message = format!("{why} matching FailJob rule at index {index}");
                Some(Action::FailJob(message))
            }
            _ => None,
        }
    })
}

/// Whether the failure of a pod counts against the limits of its Job.
pub(super) fn counts(spec: &JobSpec, pod: &Pod) -> bool {
    action(spec, pod) != Some(Action::Ignore)
}

/// The first container that ended as is asked for, in words; those of the pod come before those
/// that initialize it.
fn exit_code(pod: &Pod, asked: &PodFailurePolicyOnExitCodesRequirement) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let mut all = containers.chain(status.init_container_statuses.iter().flatten());
    all.find_map(|container| {
        let code = failed_with(container)?;
        let name = container.name.as_deref().unwrap_or_default();
        let is_meant = asked
            .container_name
            .as_ref()
            .is_none_or(|wanted| wanted == name);
        let matches = match asked.operator.as_str() {
            "In" => asked.values.contains(&code),
            "NotIn" => !asked.values.contains(&code),
            _ => false,
        };
        (is_meant && matches).then(|| {
            let pod = full_name(pod);
            format!("Container {name} for pod {pod} failed with exit code {code}")
        })
    })
}

/// Success is no failure, whatever the codes say.
fn failed_with(container: &ContainerStatus) -> Option<i32> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    Some(ended.exit_code).filter(|code| *code != 0)
}

fn condition(pod: &Pod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<String> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|condition| {
        patterns.iter().any(|pattern| {
            let status = pattern.status.as_deref().unwrap_or("True");
            condition.type_ == *pattern.type_ && condition.status == status
        })
    })?;
    Some(format!(
        "Pod {} has condition {}",
        full_name(pod),
        &*found.type_
    ))
}

fn full_name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}
