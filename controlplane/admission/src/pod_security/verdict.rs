//! What comes of a pod under the policy of its namespace: pure.
//!
//! Source: `EvaluatePod` in `k8s.io/pod-security-admission/admission/admission.go`, and
//! `policy/checks.go`, at v1.37.

use coracle_api::status::FieldErrors;

use super::{
    level::{LevelVersion, PREFIX, Policy},
    metrics::Count,
    pod::Pod,
    standard::violations,
    violation::details,
};

/// What the client is told, and what the audit is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why the pod is not let in.
    pub(super) refusal: Option<String>,
    pub(super) warnings: Vec<String>,
    /// Keys without [`PREFIX`], and values.
    pub(super) audit: Vec<(&'static str, String)>,
    pub(super) counts: Vec<Count>,
}

impl Verdict {
    /// Nobody looks, because of this.
    pub(super) fn exempt(by: &str) -> Self {
        Self {
            audit: vec![("exempt", by.to_owned())],
            counts: vec![Count::Exempt],
            ..Self::default()
        }
    }

    /// Nobody can look.
    pub(super) fn failed(why: &str) -> Self {
        Self {
            audit: vec![("error", why.to_owned())],
            counts: vec![Count::Failed { is_fatal: true }],
            ..Self::default()
        }
    }

    /// Nothing is asked.
    pub(super) fn privileged() -> Self {
        let asked = LevelVersion::PRIVILEGED;
        Self {
            audit: vec![("enforce-policy", asked.to_string())],
            counts: vec![Count::Evaluated {
                is_allowed: true,
                mode: "enforce",
                asked,
            }],
            ..Self::default()
        }
    }

    /// The audit's annotations as they are written.
    pub(super) fn annotations(&mut self) -> impl Iterator<Item = (String, String)> + use<'_> {
        let all = self.audit.drain(..);
        all.map(|(key, value)| (format!("{PREFIX}{key}"), value))
    }
}

/// Looks at a pod that is made or changed, or at one that a template makes, which nobody is
/// refused for. `errors` are those of the namespace's labels.
pub(super) fn of_pod(
    policy: &Policy,
    errors: &FieldErrors,
    pod: Pod<'_>,
    is_enforced: bool,
) -> Verdict {
    let mut verdict = Verdict::default();
    if !errors.is_empty() {
        let error = format!("Failed to parse policy: {errors}");
        verdict.audit.push(("error", error));
        verdict.counts.push(Count::Failed { is_fatal: false });
    }
    let mut seen: Vec<(LevelVersion, String)> = Vec::new();
    // What is asked twice is answered once.
    let mut found = |asked: LevelVersion| {
        if let Some((_, known)) = seen.iter().find(|(other, _)| *other == asked) {
            return known.clone();
        }
        let details = details(&violations(asked, pod));
        seen.push((asked, details.clone()));
        details
    };
    let count = |mode, asked, is_allowed| Count::Evaluated {
        is_allowed,
        mode,
        asked,
    };
    if is_enforced {
        let enforced = policy.enforce.to_string();
        let details = found(policy.enforce);
        if !details.is_empty() {
            verdict.refusal = Some(format!("violates PodSecurity \"{enforced}\": {details}"));
        }
        verdict.audit.push(("enforce-policy", enforced));
        let is_allowed = verdict.refusal.is_none();
        let count = count("enforce", policy.enforce, is_allowed);
        verdict.counts.push(count);
    }
    let mut would = |asked: LevelVersion| {
        let details = found(asked);
        (!details.is_empty()).then(|| format!("would violate PodSecurity \"{asked}\": {details}"))
    };
    if let Some(text) = would(policy.audit) {
        verdict.audit.push(("audit-violations", text));
        verdict.counts.push(count("audit", policy.audit, false));
    }
    if verdict.refusal.is_none()
        && let Some(text) = would(policy.warn)
    {
        verdict.warnings.push(text);
        verdict.counts.push(count("warn", policy.warn, false));
    }
    verdict
}
