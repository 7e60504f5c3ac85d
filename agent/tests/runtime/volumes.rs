//! What is mounted into containers, and what of it is seen where.

use std::time::Duration;

use coracle_agent::runtime::*;

use super::harness::*;

#[tokio::test]
async fn volumes_are_mounted_as_asked() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("volume");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    let mount = |host_path: &std::path::Path, container_path: &str, readonly| Mount {
        container_path: container_path.into(),
        host_path: host_path.into(),
        readonly,
        recursive_readonly: false,
        propagation: MountPropagation::Private,
    };
    let mounts = vec![
        mount(&source, "/rw", false),
        mount(&source, "/deep/er/ro", true),
        mount(&source.join("file"), "/etc/one", true),
    ];
    let script =
        "cat /rw/file /etc/one; touch /rw/new && echo wrote; touch /deep/er/ro/no || echo refused";
    let (_, log) = node
        .output(&ContainerConfig {
            mounts,
            ..shell(script)
        })
        .await;
    assert!(log.contains("contentcontent"), "{log}");
    assert!(log.contains("wrote") && log.contains("refused"), "{log}");
    assert!(source.join("new").exists());
    node.finish().await;
}

fn bind(host_path: &std::path::Path, container_path: &str) -> Mount {
    Mount {
        container_path: container_path.into(),
        host_path: host_path.into(),
        readonly: true,
        recursive_readonly: false,
        propagation: MountPropagation::Private,
    }
}

#[tokio::test]
async fn paths_with_parents_in_them_lead_where_they_do_inside() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("volume");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "content\n").unwrap();
    std::fs::create_dir_all(node.layer().join("deep/er")).unwrap();
    std::os::unix::fs::symlink("/deep/er", node.layer().join("link")).unwrap();
    let places = ["/absent/../one", "/link/../two", "/../../three"];
    let config = ContainerConfig {
        mounts: places.map(|place| bind(&source, place)).to_vec(),
        working_dir: Some("/srv/../home/./web".into()),
        ..shell("pwd; cat /one/file /deep/two/file /three/file; exec sleep 1000")
    };
    let (_, id) = node.run(&config).await;
    node.logged(&id, "/home/web\ncontent\ncontent\ncontent\n")
        .await;
    assert_eq!(node.exec(&id, "pwd").await.stdout, b"/home/web\n");
    node.finish().await;
}

#[tokio::test]
async fn a_mount_that_fails_says_where_and_why() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    // A directory where the image has a file.
    let config = ContainerConfig {
        mounts: vec![bind(node.dir.path(), "/etc/passwd")],
        ..container(&["true"])
    };
    let outcome = node.runtime().create_container(&sandbox.id, &config).await;
    let message = outcome.unwrap_err().to_string();
    assert!(
        message.ends_with("failed to prepare rootfs: mount /etc/passwd: Not a directory"),
        "{message}"
    );
    node.finish().await;
}

#[tokio::test]
async fn volume_mounted_after_the_sandbox_was_made_is_seen() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let source = node.dir.path().join("late");
    std::fs::create_dir(&source).unwrap();
    nix::mount::mount(
        Some("tmpfs"),
        &source,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    std::fs::write(source.join("file"), "late").unwrap();
    let mounts = vec![Mount {
        container_path: "/v".into(),
        host_path: source.clone(),
        readonly: true,
        recursive_readonly: false,
        propagation: MountPropagation::Private,
    }];
    let id = node
        .runtime()
        .create_container(
            &sandbox.id,
            &ContainerConfig {
                mounts,
                ..shell("cat /v/file")
            },
        )
        .await
        .unwrap();
    node.runtime().start_container(&id).await.unwrap();
    node.exited(&id).await;
    assert_eq!(node.log(&id).await, "late");
    nix::mount::umount2(&source, nix::mount::MntFlags::empty()).unwrap();
    node.finish().await;
}

/// A file system of the node that is shared with whoever has a part of it.
fn shared_tmpfs(at: &std::path::Path) {
    use nix::mount::{MsFlags, mount};
    std::fs::create_dir(at).unwrap();
    mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    mount(
        None::<&str>,
        at,
        None::<&str>,
        MsFlags::MS_SHARED,
        None::<&str>,
    )
    .unwrap();
}

#[tokio::test]
async fn what_the_node_mounts_later_is_seen_only_where_it_was_asked_for() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("spread");
    shared_tmpfs(&source);
    std::fs::create_dir(source.join("later")).unwrap();
    let mount = |container_path: &str, propagation| Mount {
        container_path: container_path.into(),
        host_path: source.clone(),
        readonly: false,
        recursive_readonly: false,
        propagation,
    };
    let (none, follows) = (
        mount("/none", MountPropagation::Private),
        mount("/follows", MountPropagation::HostToContainer),
    );
    let both = mount("/both", MountPropagation::Bidirectional);
    for mounts in [
        vec![none.clone(), follows.clone()],
        vec![none, follows, both],
    ] {
        let (sandbox, id) = node
            .run(&ContainerConfig {
                mounts,
                ..container(&["sleep", "1000"])
            })
            .await;
        let later = source.join("later");
        nix::mount::mount(
            Some("tmpfs"),
            &later,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
        std::fs::write(later.join("secret"), "").unwrap();
        let seen = node.exec(&id, "ls /none/later /follows/later").await;
        assert_eq!(
            String::from_utf8_lossy(&seen.stdout),
            "/follows/later:\nsecret\n\n/none/later:\n"
        );
        let tied = node
            .exec(
                &id,
                "grep -E ' /none ' /proc/self/mountinfo | grep -E 'master:'; true",
            )
            .await;
        assert_eq!(String::from_utf8_lossy(&tied.stdout), "");
        node.runtime()
            .stop_container(&id, Duration::ZERO)
            .await
            .unwrap();
        node.runtime().remove_container(&id).await.unwrap();
        node.runtime().stop_pod_sandbox(&sandbox).await.unwrap();
        nix::mount::umount2(&later, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
    nix::mount::umount2(&source, nix::mount::MntFlags::MNT_DETACH).unwrap();
    node.finish().await;
}

#[tokio::test]
async fn recursively_read_only_reaches_what_is_mounted_below() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("tree");
    shared_tmpfs(&source);
    let below = source.join("below");
    shared_tmpfs(&below);
    let mount = |container_path: &str, recursive_readonly| Mount {
        container_path: container_path.into(),
        host_path: source.clone(),
        readonly: true,
        recursive_readonly,
        propagation: MountPropagation::Private,
    };
    let mounts = vec![mount("/top", false), mount("/all", true)];
    let script = "for f in /top/f /top/below/f /all/f /all/below/f; do touch $f 2>/dev/null && echo wrote $f; done; true";
    let (_, log) = node
        .output(&ContainerConfig {
            mounts,
            ..shell(script)
        })
        .await;
    assert_eq!(log, "wrote /top/below/f\n");
    for path in [below, source] {
        nix::mount::umount2(&path, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
    node.finish().await;
}
