use std::path::{Path, PathBuf};

use super::*;
use crate::runtime::{PodRef, PodUid, SecurityContext};

fn sandbox() -> SandboxConfig {
    SandboxConfig {
        pod: PodRef {
            namespace: "default".into(),
            name: "web".into(),
            uid: PodUid("1".into()),
        },
        attempt: 0,
        hostname: "web".into(),
        host_network: false,
        host_pid: false,
        host_ipc: false,
        share_process_namespace: false,
        user_namespace: false,
        runtime_handler: String::new(),
        port_mappings: vec![],
        dns: Default::default(),
        cgroup_parent: "/kubepods/pod1".into(),
        resources: Resources::default(),
        sysctls: Default::default(),
        log_directory: PathBuf::from("/logs"),
        labels: Default::default(),
        annotations: Default::default(),
    }
}

fn container() -> ContainerConfig {
    ContainerConfig {
        name: "c".into(),
        attempt: 0,
        image: "i".into(),
        image_id: "i".into(),
        image_ref: String::new(),
        command: vec![],
        args: vec![],
        env: vec![],
        working_dir: None,
        mounts: vec![],
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: Resources::default(),
        security: SecurityContext::default(),
        log_path: "c/0.log".into(),
        init: false,
        stop_signal: None,
        spec_hash: String::new(),
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/entry".into()],
        cmd: vec!["cmd".into()],
        env: vec!["PATH=/opt/bin".into(), "A=image".into()],
        ..ImageConfig::default()
    }
}

fn planned(container: &ContainerConfig) -> Result<CreateSpec, SpecError> {
    planned_of(container, &image())
}

fn planned_of(container: &ContainerConfig, image: &ImageConfig) -> Result<CreateSpec, SpecError> {
    plan(&Input {
        sandbox: &sandbox(),
        sandbox_dir: Path::new("/run/s"),
        container,
        id: "abc",
        image,
        layers: vec![],
        writable: Path::new("/w"),
        localhost_profile: None,
        compiled_filters: Path::new("/run/coracle/seccomp"),
        node: Node {
            cgroup_v2: false,
            min_oom_score_adj: 0,
        },
    })
}

#[test]
fn spec_is_one_that_oci_tools_read() {
    let spec = planned(&container()).unwrap().spec;
    let parsed: oci_spec::runtime::Spec = serde_json::from_value(spec).unwrap();
    assert_eq!(
        parsed.process().as_ref().unwrap().args().as_ref().unwrap(),
        &["/entry", "cmd"]
    );
    assert!(parsed.linux().as_ref().unwrap().seccomp().is_some());
}

#[test]
fn command_and_args_override_as_kubernetes_says() {
    let table: [(&[&str], &[&str], &[&str]); 4] = [
        (&[], &[], &["/entry", "cmd"]),
        (&["/own"], &[], &["/own"]),
        (&[], &["arg"], &["/entry", "arg"]),
        (&["/own"], &["arg"], &["/own", "arg"]),
    ];
    for (command, args, expected) in table {
        let strings = |list: &[&str]| {
            list.iter()
                .map(|item| (*item).to_owned())
                .collect::<Vec<_>>()
        };
        let container = ContainerConfig {
            command: strings(command),
            args: strings(args),
            ..container()
        };
        assert_eq!(
            planned(&container).unwrap().spec["process"]["args"],
            json!(expected)
        );
    }
}

#[test]
fn later_environment_wins() {
    let env = vec![
        ("A".into(), "pod".into()),
        ("B".into(), "x".into()),
        ("B".into(), "y".into()),
    ];
    let spec = planned(&ContainerConfig { env, ..container() })
        .unwrap()
        .spec;
    assert_eq!(
        spec["process"]["env"],
        json!(["PATH=/opt/bin", "HOSTNAME=web", "A=pod", "B=y"])
    );
}

#[test]
fn a_nul_byte_is_refused_by_name() {
    let of_image = ImageConfig {
        env: vec!["A=x\0y".into()],
        ..image()
    };
    let told = planned_of(&container(), &of_image).unwrap_err().to_string();
    assert_eq!(
        told,
        "environment variable of the image \"A=x\\0y\" contains a NUL byte"
    );
    let command = ContainerConfig {
        command: vec!["/bin/sh\0".into()],
        ..container()
    };
    assert!(matches!(
        planned(&command),
        Err(SpecError::Nul {
            what: "command",
            ..
        })
    ));
    let env = ContainerConfig {
        env: vec![("A".into(), "x\0y".into())],
        ..container()
    };
    assert_eq!(
        planned(&env).expect_err("NUL").to_string(),
        "the value of environment variable \"A\" contains a NUL byte"
    );
}

#[test]
fn volumes_say_how_they_spread_and_how_far_they_are_read_only() {
    let mount = |readonly, recursive_readonly, propagation| crate::runtime::Mount {
        container_path: "/v".into(),
        host_path: "/h".into(),
        readonly,
        recursive_readonly,
        propagation,
    };
    for (mount, options) in [
        (
            mount(false, false, MountPropagation::Private),
            ["rbind", "rprivate", "rw"],
        ),
        (
            mount(true, false, MountPropagation::HostToContainer),
            ["rbind", "rslave", "ro"],
        ),
        (
            mount(true, true, MountPropagation::Bidirectional),
            ["rbind", "rshared", "rro"],
        ),
    ] {
        let spec = planned(&ContainerConfig {
            mounts: vec![mount],
            ..container()
        })
        .unwrap();
        assert_eq!(spec.mounts[0].options, options);
    }
}

fn caps(security: SecurityContext) -> Result<Vec<String>, SpecError> {
    let spec = planned(&ContainerConfig {
        security,
        ..container()
    })?
    .spec;
    let list = spec["process"]["capabilities"]["bounding"]
        .as_array()
        .unwrap()
        .clone();
    Ok(list
        .iter()
        .map(|cap| cap.as_str().unwrap().to_owned())
        .collect())
}

#[test]
fn capabilities_are_added_and_dropped() {
    let strings = |list: &[&str]| {
        list.iter()
            .map(|item| (*item).to_owned())
            .collect::<Vec<_>>()
    };
    let with = |add: &[&str], drop: &[&str]| {
        caps(SecurityContext {
            cap_add: strings(add),
            cap_drop: strings(drop),
            ..SecurityContext::default()
        })
    };
    assert_eq!(with(&[], &[]).unwrap().len(), 14);
    assert_eq!(
        with(&["NET_BIND_SERVICE"], &["ALL"]).unwrap(),
        ["CAP_NET_BIND_SERVICE"]
    );
    assert!(
        !with(&["ALL"], &["NET_RAW"])
            .unwrap()
            .contains(&"CAP_NET_RAW".to_owned())
    );
    assert!(
        with(&["NET_ADMIN"], &[])
            .unwrap()
            .contains(&"CAP_NET_ADMIN".to_owned())
    );
    assert!(matches!(
        with(&["NO_SUCH"], &[]),
        Err(SpecError::UnknownCapability(_))
    ));
}

#[test]
fn no_new_privileges_is_true_or_absent() {
    for (allowed, expected) in [
        (None, Value::Null),
        (Some(true), Value::Null),
        (Some(false), json!(true)),
    ] {
        let security = SecurityContext {
            allow_privilege_escalation: allowed,
            ..SecurityContext::default()
        };
        let spec = planned(&ContainerConfig {
            security,
            ..container()
        })
        .unwrap()
        .spec;
        assert_eq!(spec["process"]["noNewPrivileges"], expected);
    }
}

#[test]
fn oom_score_is_clamped_to_what_the_node_may_give() {
    let resources = Resources {
        oom_score_adj: Some(-997),
        ..Resources::default()
    };
    let spec = planned(&ContainerConfig {
        resources,
        ..container()
    })
    .unwrap()
    .spec;
    assert_eq!(spec["process"]["oomScoreAdj"], json!(0));
}

#[test]
fn an_oom_kill_takes_the_whole_container_on_cgroup_v2() {
    for (memory_limit_bytes, cgroup_v2, expected) in [
        (Some(1 << 24), true, json!("1")),
        (Some(1 << 24), false, Value::Null),
        (None, true, Value::Null),
    ] {
        let found = super::resources(
            &Resources {
                memory_limit_bytes,
                ..Resources::default()
            },
            false,
            cgroup_v2,
        );
        assert_eq!(found["unified"]["memory.oom.group"], expected);
    }
}

#[test]
fn an_apparmor_profile_is_the_processs_own() {
    let security = SecurityContext {
        apparmor_profile: Some("web".to_owned()),
        ..SecurityContext::default()
    };
    let spec = planned(&ContainerConfig {
        security,
        ..container()
    })
    .unwrap()
    .spec;
    assert_eq!(spec["process"]["apparmorProfile"], "web");
}

#[test]
fn default_profile_depends_on_capabilities() {
    let allows = |caps: &[&str], name: &str| {
        let caps: Vec<String> = caps.iter().map(|cap| (*cap).to_owned()).collect();
        let profile = seccomp::runtime_default(&caps);
        profile["syscalls"].as_array().unwrap().iter().any(|rule| {
            rule["action"] == "SCMP_ACT_ALLOW"
                && rule["args"].is_null()
                && rule["names"].as_array().unwrap().contains(&json!(name))
        })
    };
    for (caps, name, expected) in [
        (&[][..], "read", true),
        (&[][..], "mount", false),
        (&["CAP_SYS_ADMIN"][..], "mount", true),
        (&[][..], "keyctl", false),
        (&[][..], "clone", false),
        (&["CAP_SYS_ADMIN"][..], "clone", true),
        (&["CAP_SYS_TIME"][..], "settimeofday", true),
    ] {
        assert_eq!(allows(caps, name), expected, "{name} with {caps:?}");
    }
}

#[test]
fn a_localhost_rule_wants_all_that_it_includes() {
    let takes = |condition: serde_json::Value, caps: &[&str]| {
        let mut rule = json!({"names": ["mount"], "action": "SCMP_ACT_ALLOW"});
        rule.as_object_mut()
            .unwrap()
            .extend(condition.as_object().unwrap().clone());
        let text = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [rule]}).to_string();
        let caps: Vec<String> = caps.iter().map(|cap| (*cap).to_owned()).collect();
        seccomp::from_profile(&text, &caps).unwrap()["syscalls"]
            .as_array()
            .unwrap()
            .len()
            == 1
    };
    let two = json!({"includes": {"caps": ["CAP_A", "CAP_B"]}});
    assert!(!takes(two.clone(), &["CAP_A"]));
    assert!(takes(two, &["CAP_B", "CAP_A"]));
    let neither = json!({"excludes": {"caps": ["CAP_A", "CAP_B"]}});
    assert!(!takes(neither.clone(), &["CAP_B"]));
    assert!(takes(neither, &[]));
    assert!(takes(json!({"includes": {"minKernel": "2.6"}}), &[]));
    assert!(!takes(json!({"includes": {"minKernel": "999.0"}}), &[]));
    assert!(!takes(json!({"excludes": {"minKernel": "2.6"}}), &[]));
    assert!(!takes(json!({"includes": {"arches": ["none"]}}), &[]));
}

#[test]
fn unusable_localhost_profile_is_refused() {
    let min_kernel =
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"includes": {"minKernel": "new"}}]}"#;
    for text in ["", "[]", "{}", "{\"defaultAction\": 3}", min_kernel] {
        assert!(seccomp::from_profile(text, &[]).is_err(), "{text:?}");
    }
}
