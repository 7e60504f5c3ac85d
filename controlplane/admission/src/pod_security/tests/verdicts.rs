//! What comes of a pod.

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::{
    super::{
        level::{LevelVersion, Policy},
        pod::Pod,
        verdict::{Verdict, of_pod},
    },
    asked, container, pod,
};

const FOUND: &str = "privileged (container \"c\" must not set securityContext.privileged=true)";

fn policy(enforce: &str, audit: &str, warn: &str) -> Policy {
    let [enforce, audit, warn] = [enforce, audit, warn].map(asked);
    Policy {
        enforce,
        audit,
        warn,
    }
}

fn bad() -> Value {
    pod(json!({"containers": [container("c", json!({"privileged": true}))]}))
}

fn judged(policy: &Policy, pod: &Value, is_enforced: bool) -> Verdict {
    of_pod(policy, &FieldErrors::default(), Pod::of(pod), is_enforced)
}

#[test]
fn a_pod_is_refused_put_on_record_and_warned_of_by_its_own_level_each() {
    let (p, b) = ("privileged:latest", "baseline:v1.30");
    let enforced = |level: &str| ("enforce-policy", level.to_owned());
    let would = format!("would violate PodSecurity \"baseline:v1.30\": {FOUND}");
    let recorded = || ("audit-violations", would.clone());
    let check = |levels: [&str; 3], expect: Verdict| {
        let [enforce, audit, warn] = levels;
        let mut verdict = judged(&policy(enforce, audit, warn), &bad(), true);
        verdict.counts.clear();
        assert_eq!(verdict, expect, "{levels:?}");
    };
    let nothing = || Verdict {
        audit: vec![enforced(p)],
        ..Verdict::default()
    };
    check([p, p, p], nothing());
    check(
        [p, p, b],
        Verdict {
            warnings: vec![would.clone()],
            ..nothing()
        },
    );
    check(
        [p, b, p],
        Verdict {
            audit: vec![enforced(p), recorded()],
            ..nothing()
        },
    );
    let refused = || Verdict {
        refusal: Some(format!("violates PodSecurity \"baseline:v1.30\": {FOUND}")),
        audit: vec![enforced(b)],
        ..Verdict::default()
    };
    check([b, p, p], refused());
    // Whoever is refused has no use for warnings.
    check(
        [b, b, b],
        Verdict {
            audit: vec![enforced(b), recorded()],
            ..refused()
        },
    );
}

#[test]
fn nobody_is_refused_for_a_template() {
    let all = policy("restricted:latest", "baseline:v1.30", "baseline:v1.30");
    let verdict = judged(&all, &bad(), false);
    assert_eq!(verdict.refusal, None);
    let would = format!("would violate PodSecurity \"baseline:v1.30\": {FOUND}");
    assert_eq!(verdict.audit, [("audit-violations", would.clone())]);
    assert_eq!(verdict.warnings, [would]);
}

#[test]
fn labels_that_cannot_be_read_are_put_on_record() {
    let (policy, errors) = Policy::of_labels(
        |label| label.ends_with("/enforce").then_some("x"),
        &Policy::PRIVILEGED,
    );
    let mut verdict = of_pod(&policy, &errors, Pod::of(&pod(json!({}))), true);
    let error = "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: \
        Invalid value: \"x\": must be one of privileged, baseline, restricted";
    let written: Vec<(String, String)> = verdict.annotations().collect();
    let expect = [
        ("pod-security.kubernetes.io/error", error),
        (
            "pod-security.kubernetes.io/enforce-policy",
            "restricted:latest",
        ),
    ];
    assert_eq!(
        written,
        expect.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    assert_eq!(verdict.refusal, None);
}

#[test]
fn who_is_not_looked_at_is_put_on_record() {
    let by = |verdict: Verdict| verdict.audit;
    assert_eq!(by(Verdict::exempt("user")), [("exempt", "user".to_owned())]);
    assert_eq!(
        by(Verdict::privileged()),
        [("enforce-policy", LevelVersion::PRIVILEGED.to_string())]
    );
}
