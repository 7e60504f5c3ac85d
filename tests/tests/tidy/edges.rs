//! Which crate may depend on which.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use coracle_tests::workspace;

use super::report;

/// What a crate may depend on, besides crates of others. Everything else is a forbidden edge.
const EDGES: &[(&str, &[&str])] = &[
    ("coracle-structural", &[]),
    ("coracle-api", &["coracle-structural"]),
    ("coracle-client", &["coracle-telemetry", "coracle-api"]),
    ("coracle-relay", &[]),
    ("coracle-telemetry", &[]),
    ("coracle-trust", &[]),
    ("coracle-store", &["coracle-telemetry"]),
    (
        "coracle-store-etcd",
        &["coracle-telemetry", "coracle-store"],
    ),
    ("coracle-cel", &["coracle-api", "coracle-structural"]),
    ("coracle-webhook", &["coracle-telemetry"]),
    (
        "coracle-registry",
        &[
            "coracle-telemetry",
            "coracle-api",
            "coracle-cel",
            "coracle-store",
            "coracle-structural",
            "coracle-webhook",
        ],
    ),
    (
        "coracle-auth",
        &["coracle-api", "coracle-store", "coracle-registry"],
    ),
    (
        "coracle-admission",
        &[
            "coracle-api",
            "coracle-store",
            "coracle-registry",
            "coracle-auth",
            "coracle-cel",
            "coracle-webhook",
        ],
    ),
    (
        "coracle-apiserver",
        &[
            "coracle-telemetry",
            "coracle-trust",
            "coracle-api",
            "coracle-relay",
            "coracle-store",
            "coracle-registry",
            "coracle-auth",
            "coracle-admission",
            "coracle-webhook",
        ],
    ),
    (
        "coracle-scheduler",
        &["coracle-telemetry", "coracle-api", "coracle-client"],
    ),
    (
        "coracle-controllers",
        &["coracle-telemetry", "coracle-api", "coracle-client"],
    ),
    (
        "coracle-controlplane",
        &[
            "coracle-telemetry",
            "coracle-trust",
            "coracle-api",
            "coracle-client",
            "coracle-store",
            "coracle-store-etcd",
            "coracle-apiserver",
            "coracle-scheduler",
            "coracle-controllers",
        ],
    ),
    ("coracle-netns", &[]),
    ("coracle-bpf", &[]),
    ("coracle-netfilter", &["coracle-telemetry"]),
    ("coracle-policy", &["coracle-api", "coracle-netfilter"]),
    ("coracle-dns", &["coracle-relay", "coracle-telemetry"]),
    (
        "coracle-cni",
        &[
            "coracle-telemetry",
            "coracle-bpf",
            "coracle-netfilter",
            "coracle-netns",
        ],
    ),
    ("coracle-shim-protocol", &[]),
    ("coracle-shim", &["coracle-bpf", "coracle-shim-protocol"]),
    (
        "coracle-agent",
        &[
            "coracle-telemetry",
            "coracle-trust",
            "coracle-api",
            "coracle-client",
            "coracle-relay",
            "coracle-dns",
            "coracle-netfilter",
            "coracle-policy",
            "coracle-cni",
            "coracle-netns",
            "coracle-shim-protocol",
        ],
    ),
    ("coracle-ground", &[]),
    ("coracle-tests", &["coracle-ground"]),
    (
        "coracle-fuzz",
        &[
            "coracle-structural",
            "coracle-api",
            "coracle-apiserver",
            "coracle-agent",
            "coracle-cel",
            "coracle-dns",
            "coracle-netfilter",
            "coracle-scheduler",
            "coracle-shim",
        ],
    ),
    (
        "coracle",
        &["coracle-telemetry", "coracle-controlplane", "coracle-agent"],
    ),
];

#[test]
fn dependencies_point_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("run cargo metadata");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let allowed: BTreeMap<&str, BTreeSet<&str>> = EDGES
        .iter()
        .map(|(from, to)| (*from, to.iter().copied().collect()))
        .collect();
    for (from, to) in &allowed {
        let to: Vec<&str> = to.iter().copied().collect();
        println!("{from} -> {}", to.join(", "));
    }
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let from = package["name"].as_str().expect("a name");
        let Some(allowed) = allowed.get(from) else {
            problems.push(format!("{from} is not in this test's table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = dependency["name"].as_str().expect("a name");
            // A test may lean on the real thing: dev-dependencies are no edge of the house.
            let dev = dependency["kind"] == "dev";
            if to.starts_with("coracle") && !dev && !allowed.contains(to) {
                problems.push(format!("{from} must not depend on {to}"));
            }
            if to == "libcontainer" && from != "coracle-shim" {
                problems.push(format!(
                    "{from} must not link libcontainer: only the shim's package may"
                ));
            }
        }
    }
    report(problems);
}
