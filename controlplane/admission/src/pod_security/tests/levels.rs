//! What labels say.

use std::collections::BTreeMap;

use super::{
    super::level::{PREFIX, Policy, Version},
    asked,
};

fn policy(labels: &[(&str, &str)], defaults: &Policy) -> (Policy, String) {
    let labels: BTreeMap<String, &str> = labels
        .iter()
        .map(|(name, value)| (format!("{PREFIX}{name}"), *value))
        .collect();
    let (policy, errors) = Policy::of_labels(|label| labels.get(label).copied(), defaults);
    let errors = if errors.is_empty() {
        String::new()
    } else {
        errors.to_string()
    };
    (policy, errors)
}

#[test]
fn labels_say_what_is_asked_and_whoever_is_silent_is_warned_of_what_is_enforced() {
    const P: &str = "privileged:latest";
    let check = |labels: &[(&str, &str)], expect: [&str; 3]| {
        let (policy, errors) = policy(labels, &Policy::PRIVILEGED);
        let [enforce, audit, warn] = expect.map(asked);
        assert_eq!(
            policy,
            Policy {
                enforce,
                audit,
                warn
            },
            "{labels:?}"
        );
        assert_eq!(errors, "", "{labels:?}");
    };
    check(&[], [P; 3]);
    check(
        &[("enforce", "baseline")],
        ["baseline:latest", P, "baseline:latest"],
    );
    check(&[("warn", "restricted")], [P, P, "restricted:latest"]);
    check(
        &[("audit", "baseline"), ("audit-version", "v1.0")],
        [P, "baseline:v1.0", P],
    );
    check(
        &[("enforce", "baseline"), ("warn", "restricted")],
        ["baseline:latest", P, "restricted:latest"],
    );
    check(
        &[("enforce", "baseline"), ("enforce-version", "v1.22")],
        ["baseline:v1.22", P, "baseline:v1.22"],
    );
    check(
        &[
            ("enforce", "baseline"),
            ("enforce-version", "v1.22"),
            ("warn-version", "latest"),
        ],
        ["baseline:v1.22", P, "baseline:latest"],
    );
    check(
        &[("enforce", "baseline"), ("warn-version", "v1.23")],
        ["baseline:latest", P, "baseline:v1.23"],
    );
    check(
        &[("enforce", "restricted"), ("warn", "privileged")],
        ["restricted:latest", P, P],
    );
    check(
        &[("warn-version", "v1.99999999999")],
        [P, P, "privileged:v1.99999999999"],
    );
}

#[test]
fn what_labels_do_not_say_the_configuration_does() {
    let defaults = Policy {
        enforce: asked("baseline:v1.20"),
        audit: asked("restricted:latest"),
        warn: asked("restricted:v1.30"),
    };
    assert_eq!(policy(&[], &defaults).0, defaults);
    let (said, _) = policy(
        &[("enforce", "privileged"), ("audit-version", "v1.1")],
        &defaults,
    );
    let expect = Policy {
        enforce: asked("privileged:v1.20"),
        audit: asked("restricted:v1.1"),
        warn: asked("restricted:v1.30"),
    };
    assert_eq!(said, expect);
}

#[test]
fn what_cannot_be_read_is_the_strictest_if_it_is_enforced_and_nothing_otherwise() {
    let labels = [
        ("enforce", "Baseline"),
        ("enforce-version", "1.20"),
        ("audit", ""),
        ("audit-version", "v1.01"),
        ("warn", "all"),
        ("warn-version", "v1.99999999999999999999"),
    ];
    let (policy, errors) = policy(&labels, &Policy::PRIVILEGED);
    let expect = Policy {
        enforce: asked("restricted:latest"),
        audit: asked("privileged:latest"),
        warn: asked("privileged:latest"),
    };
    assert_eq!(policy, expect);
    let level = "must be one of privileged, baseline, restricted";
    let version = "must be \"latest\" or \"v1.x\"";
    let all = labels.map(|(name, value)| {
        let why = if name.ends_with("version") {
            version
        } else {
            level
        };
        format!("metadata.labels[{PREFIX}{name}]: Invalid value: {value:?}: {why}")
    });
    assert_eq!(errors, format!("[{}]", all.join(", ")));
}

/// A level that is not readable is not told to writers as what is enforced.
#[test]
fn nobody_is_warned_by_a_level_that_cannot_be_read() {
    let (policy, _) = policy(&[("enforce", "strict")], &Policy::PRIVILEGED);
    assert_eq!(
        (policy.enforce, policy.warn),
        (asked("restricted:latest"), asked("privileged:latest"))
    );
}

#[test]
fn versions_are_minors_of_1_without_leading_zeros() {
    for (text, expect) in [
        ("latest", Some(Version::Latest)),
        ("v1.0", Some(Version::Minor(0))),
        ("v1.37", Some(Version::Minor(37))),
        ("v1.10000", Some(Version::Minor(10000))),
        ("", None),
        ("v1", None),
        ("v1.", None),
        ("v1.01", None),
        ("v1.+1", None),
        ("v1.-1", None),
        ("v1.1.1", None),
        ("v2.0", None),
        ("1.1", None),
        ("Latest", None),
    ] {
        assert_eq!(Version::parse(text).ok(), expect, "{text:?}");
    }
}
