//! Images that mean harm.

use std::os::unix::fs::symlink;

use coracle_agent::runtime::*;

use super::harness::*;

#[tokio::test]
async fn image_with_links_for_system_directories_is_refused() {
    let Some(node) = node().await else { return };
    let victim = node.dir.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("ptmx"), "host").unwrap();
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    for name in ["dev", "proc", "sys"] {
        let link = node.layer().join(name);
        symlink(&victim, &link).unwrap();
        let outcome = node
            .runtime()
            .create_container(&sandbox.id, &container(&["true"]))
            .await;
        assert!(
            matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
            "{name}: {outcome:?}"
        );
        std::fs::remove_file(link).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(victim.join("ptmx")).unwrap(),
        "host"
    );
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
    node.finish().await;
}

#[tokio::test]
async fn image_volume_stays_in_the_root() {
    let image = ImageConfig {
        volumes: vec!["/link/made".into()],
        ..ImageConfig::default()
    };
    let Some(node) = node_with(image).await else {
        return;
    };
    let victim = node.dir.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    symlink(&victim, node.layer().join("link")).unwrap();
    let _ = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let (code, _) = node.output(&shell("true")).await;
    assert_eq!(code, 0);
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 0);
    node.finish().await;
}

#[tokio::test]
async fn image_volume_above_the_root_is_refused() {
    let image = ImageConfig {
        volumes: vec!["/../../etc".into()],
        ..ImageConfig::default()
    };
    let Some(node) = node_with(image).await else {
        return;
    };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let outcome = node
        .runtime()
        .create_container(&sandbox.id, &container(&["true"]))
        .await;
    assert!(
        matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
        "{outcome:?}"
    );
    node.finish().await;
}

#[tokio::test]
async fn image_user_is_never_root_by_mistake() {
    for user in ["4294967296", "-1", "nobody-here", "2147483648"] {
        let image = ImageConfig {
            user: Some(user.into()),
            ..ImageConfig::default()
        };
        let Some(node) = node_with(image).await else {
            return;
        };
        let sandbox = node
            .runtime()
            .run_pod_sandbox(&node.sandbox())
            .await
            .unwrap();
        let outcome = node
            .runtime()
            .create_container(&sandbox.id, &container(&["true"]))
            .await;
        assert!(
            matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
            "{user}: {outcome:?}"
        );
        node.finish().await;
    }
}

#[tokio::test]
async fn image_says_how_to_run() {
    let image = ImageConfig {
        entrypoint: vec!["sh".into(), "-c".into()],
        cmd: vec!["id; pwd; echo $GREETING".into()],
        env: vec!["PATH=/bin".into(), "GREETING=hi".into()],
        working_dir: Some("/made/here".into()),
        user: Some("web".into()),
        stop_signal: None,
        volumes: vec![],
    };
    let Some(node) = node_with(image).await else {
        return;
    };
    let (code, log) = node.output(&container(&[])).await;
    assert_eq!(code, 0);
    assert!(
        log.contains("uid=1000(web) gid=1000(web) groups=1000(web),2000(extra)"),
        "{log}"
    );
    assert!(log.contains("/made/here\nhi\n"), "{log}");
    node.finish().await;
}

/// A link of the image is where a volume goes: into what the runtime makes, or around in the root.
#[tokio::test]
async fn volume_behind_a_link_cannot_replace_system_directories() {
    let Some(node) = node().await else { return };
    let volume = node.dir.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("ptmx"), "host").unwrap();
    for (link, to) in [
        ("p", "/proc"),
        ("q", "../../proc/self"),
        ("d", "/dev"),
        ("s", "sys"),
        ("r", "/"),
        ("ok", "/tmp"),
    ] {
        symlink(to, node.layer().join(link)).unwrap();
    }
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    for (destination, allowed) in [
        ("/p", false),
        ("/p/self/attr", false),
        ("/p/sys/kernel", false),
        ("/q", false),
        ("/d", false),
        ("/s", false),
        ("/r", false),
        ("/r/proc", false),
        ("/r/p/tty", false),
        ("/ok", true),
        ("/ok/deep/new", true),
        ("/d/shared", true),
    ] {
        let mount = Mount {
            container_path: destination.into(),
            host_path: volume.clone(),
            readonly: false,
            recursive_readonly: false,
            propagation: MountPropagation::Private,
        };
        let config = ContainerConfig {
            mounts: vec![mount],
            ..shell("cat /proc/self/attr/current; ls -l /proc/kcore")
        };
        let outcome = node.runtime().create_container(&sandbox.id, &config).await;
        match &outcome {
            Err(RuntimeError::InvalidConfig { message }) if !allowed => {
                assert!(
                    message.contains("cannot be mounted"),
                    "{destination}: {message}"
                );
            }
            Ok(_) if allowed => {}
            _ => panic!("{destination}: {outcome:?}"),
        }
    }
    let left: Vec<_> = std::fs::read_dir(&volume)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["ptmx"], "nothing is made in the volume");
    assert_eq!(
        std::fs::read_to_string(volume.join("ptmx")).unwrap(),
        "host"
    );
    node.finish().await;
}

/// Who shares a volume puts a link into it, where another volume is to be mounted.
#[tokio::test]
async fn volume_behind_a_link_in_another_volume_cannot_replace_system_directories() {
    let Some(node) = node().await else { return };
    let (shared, evil) = (node.dir.path().join("shared"), node.dir.path().join("evil"));
    std::fs::create_dir(&shared).unwrap();
    std::fs::create_dir(&evil).unwrap();
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    for (to, allowed) in [
        ("/proc", false),
        ("../proc/self", false),
        ("/dev", false),
        ("/sys", false),
        ("../../..", false),
        ("/tmp", true),
    ] {
        symlink(to, shared.join("link")).unwrap();
        let mount = |host_path: &std::path::Path, container_path: &str| Mount {
            container_path: container_path.into(),
            host_path: host_path.into(),
            readonly: false,
            recursive_readonly: false,
            propagation: MountPropagation::Private,
        };
        let mounts = vec![mount(&shared, "/data"), mount(&evil, "/data/link")];
        let config = ContainerConfig {
            mounts,
            ..shell("sleep 1000")
        };
        let outcome = node.runtime().create_container(&sandbox.id, &config).await;
        assert_eq!(outcome.is_ok(), allowed, "{to}: {outcome:?}");
        std::fs::remove_file(shared.join("link")).unwrap();
    }
    // In the place of /dev it got the runtime's device nodes and links, before the refusal; never
    // contents.
    let files = std::fs::read_dir(&evil)
        .unwrap()
        .flatten()
        .filter(|entry| entry.metadata().unwrap().is_file())
        .count();
    assert_eq!(files, 0);
    node.finish().await;
}
