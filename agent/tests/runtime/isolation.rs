//! What a sandbox has for itself, and what it cannot have.

use coracle_agent::runtime::*;

use super::harness::*;

#[tokio::test]
async fn sysctls_are_the_sandboxs_own() {
    let Some(node) = node().await else { return };
    let before = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let sysctls = [(
        "net.ipv4.ip_unprivileged_port_start".to_owned(),
        "77".to_owned(),
    )]
    .into();
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&SandboxConfig {
            sysctls,
            ..node.sandbox()
        })
        .await
        .unwrap();
    let script = shell("cat /proc/sys/net/ipv4/ip_unprivileged_port_start; ip link show lo");
    let id = node
        .runtime()
        .create_container(&sandbox.id, &script)
        .await
        .unwrap();
    node.runtime().start_container(&id).await.unwrap();
    node.exited(&id).await;
    let log = node.log(&id).await;
    assert!(log.starts_with("77\n") && log.contains("UP"), "{log}");
    assert_eq!(
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap(),
        before
    );
    for name in [
        "net.ipv4.no_such_thing",
        "kernel.core_pattern",
        "kernel/core_pattern",
        "vm.overcommit_memory",
    ] {
        // What is there already, so that a failure changes nothing.
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        let value = std::fs::read_to_string(file)
            .unwrap_or_else(|_| "1".to_owned())
            .trim()
            .to_owned();
        let sysctls = [(name.to_owned(), value)].into();
        let outcome = node
            .runtime()
            .run_pod_sandbox(&SandboxConfig {
                sysctls,
                ..node.sandbox()
            })
            .await;
        assert!(
            matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
            "{name}: {outcome:?}"
        );
    }
    let sysctls = [("net.ipv4.tcp_syncookies".to_owned(), "1".to_owned())].into();
    let config = SandboxConfig {
        sysctls,
        host_network: true,
        ..node.sandbox()
    };
    let outcome = node.runtime().run_pod_sandbox(&config).await;
    assert!(
        matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
        "{outcome:?}"
    );
    node.finish().await;
}

#[tokio::test]
async fn isolation_that_the_runtime_does_not_have_is_refused() {
    let Some(node) = node().await else { return };
    for config in [
        SandboxConfig {
            user_namespace: true,
            ..node.sandbox()
        },
        SandboxConfig {
            runtime_handler: "gvisor".into(),
            ..node.sandbox()
        },
    ] {
        let outcome = node.runtime().run_pod_sandbox(&config).await;
        assert!(
            matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
            "{outcome:?}"
        );
    }
    let config = SandboxConfig {
        runtime_handler: "runc".into(),
        ..node.sandbox()
    };
    node.runtime().run_pod_sandbox(&config).await.unwrap();
    node.finish().await;
}
