use std::io;

use super::*;

fn parse(text: &str) -> Result<AdmissionConfig, String> {
    let read = |name: &str| match name {
        "own.yaml" => Ok(OWN.to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    AdmissionConfig::parse(text, &read).map_err(|error| error.to_string())
}

const OWN: &str = "
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults:
  enforce: baseline
  enforce-version: v1.30
  audit: \"\"
  warn: restricted
exemptions:
  usernames: [\"system:serviceaccount:a:b\"]
  namespaces: [kube-system]
  runtimeClasses: [kata.example]
";

fn with(plugins: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n{plugins}"
    )
}

/// `OWN`, with a change, in the place of a plugin's configuration.
fn inline(from: &str, to: &str) -> String {
    assert!(OWN.contains(from), "{from}");
    let own = OWN.replacen(from, to, 1).replace('\n', "\n    ");
    with(&format!("- name: PodSecurity\n  configuration:{own}\n"))
}

#[test]
fn plugins_are_told_in_the_file_or_in_one_that_it_names() {
    let files = [
        inline("baseline", "baseline"),
        with("- name: PodSecurity\n  path: own.yaml\n"),
    ];
    for file in files {
        let config = parse(&file).expect("a configuration").pod_security;
        let told = format!("{config:?}");
        for part in [
            "Baseline, version: Minor(30)",
            "Restricted, version: Latest",
            "kata.example",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}

#[test]
fn nothing_is_told_by_nothing() {
    let unsaid = format!("{:?}", AdmissionConfig::default());
    let empty = inline("[kube-system]", "").replace("enforce: baseline", "enforce:");
    let emptied = empty.replace("enforce-version: v1.30", "enforce-version:");
    let emptied = emptied.replace("warn: restricted", "warn:");
    let emptied = emptied.replace("[kata.example]", "[]");
    let emptied = emptied.replace("[\"system:serviceaccount:a:b\"]", "");
    for file in [with(""), with("- name: PodSecurity\n"), emptied] {
        let config = parse(&file).expect(&file);
        assert_eq!(format!("{config:?}"), unsaid, "{file}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    let check = |file: &str, expect: &str| {
        let error = parse(file).expect_err(file);
        assert!(error.contains(expect), "{file}\n{error}");
    };
    check("{", "");
    check(
        "apiVersion: v1\nkind: Pod",
        "Pod of v1: expected AdmissionConfiguration of apiserver.config.k8s.io/v1",
    );
    check(
        &with("- name: AlwaysDeny\n"),
        "plugins[0].name: Unsupported value: \"AlwaysDeny\"",
    );
    check(
        &with("- name: PodSecurity\n- name: PodSecurity\n"),
        "plugins[1].name: Duplicate value: \"PodSecurity\"",
    );
    check(
        &with("- name: PodSecurity\n  configurations: {}\n"),
        "configurations",
    );
    check(
        &with("- name: PodSecurity\n  path: none.yaml\n"),
        "plugins[0]: none.yaml: ",
    );
    check(
        &inline(
            "security.admission.config.k8s.io/v1",
            "security.admission.config.k8s.io/v1alpha1",
        ),
        "plugins[0]: PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1alpha1: expected",
    );
    check(
        &inline("  warn:", "  warnn:"),
        "plugins[0]: unknown field `warnn`",
    );
    check(
        &inline("enforce: baseline", "enforce: strict"),
        "plugins[0]: defaults.enforce: Invalid value: \"strict\": must be one of privileged, baseline, restricted",
    );
    check(
        &inline("v1.30", "1.30.0"),
        "defaults.enforce-version: Invalid value: \"1.30.0\": must be \"latest\" or \"v1.x\"",
    );
    check(
        &inline("[kube-system]", "[a_b, a, a]"),
        "exemptions.namespaces[0]: Invalid value: \"a_b\": a lowercase RFC 1123 label",
    );
    check(
        &inline("[kube-system]", "[a_b, a, a]"),
        "exemptions.namespaces[2]: Duplicate value: \"a\"",
    );
    check(
        &inline("[kata.example]", "[Kata]"),
        "exemptions.runtimeClasses[0]: Invalid value: \"Kata\": a lowercase RFC 1123 subdomain",
    );
    check(
        &inline("[\"system:serviceaccount:a:b\"]", "[\"\"]"),
        "exemptions.usernames[0]: Required value",
    );
}

#[test]
fn each_plugin_is_told_its_own() {
    let limits = "{type: Server, qps: 1, burst: 1}";
    let config = parse(&with(&format!(
        "- name: EventRateLimit
  configuration: {{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{limits}]}}
- name: PodNodeSelector
  configuration: {{podNodeSelectorPluginConfig: {{clusterDefaultNodeSelector: env=test}}}}
- name: PodTolerationRestriction
  configuration: {{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration,
    whitelist: [{{key: k, operator: Exists}}]}}
"
    )))
    .expect("a configuration");
    assert_eq!(config.event_rate_limits.len(), 1);
    assert!(format!("{:?}", config.pod_node_selector).contains("env=test"));
    assert!(format!("{:?}", config.pod_tolerations).contains("Exists"));
}

#[test]
fn events_are_limited_by_limits() {
    let enabled = ["EventRateLimit".to_owned()];
    let mut config = AdmissionConfig::default();
    let error = config.select(&enabled, &[]).unwrap_err();
    let expect = "EventRateLimit: limits: Invalid value: []: must not be empty";
    assert_eq!(error.to_string(), expect);
    config.select(&[], &enabled).expect("it is off");
}
