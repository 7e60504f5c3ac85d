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
    let sandbox = node.runtime().run_pod_sandbox(&node.sandbox()).await.unwrap();
    for name in ["dev", "proc", "sys"] {
        let link = node.layer().join(name);
        symlink(&victim, &link).unwrap();
        let outcome = node.runtime().create_container(&sandbox.id, &container(&["true"])).await;
        assert!(matches!(outcome, Err(RuntimeError::InvalidConfig { .. })), "{name}: {outcome:?}");
        std::fs::remove_file(link).unwrap();
    }
    assert_eq!(std::fs::read_to_string(victim.join("ptmx")).unwrap(), "host");
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
    node.finish().await;
}

#[tokio::test]
async fn image_volume_stays_in_the_root() {
    let image = ImageConfig { volumes: vec!["/link/made".into()], ..ImageConfig::default() };
    let Some(node) = node_with(image).await else { return };
    let victim = node.dir.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    symlink(&victim, node.layer().join("link")).unwrap();
    let _ = node.runtime().run_pod_sandbox(&node.sandbox()).await.unwrap();
    let (code, _) = node.output(&shell("true")).await;
    assert_eq!(code, 0);
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 0);
    node.finish().await;
}

#[tokio::test]
async fn image_volume_above_the_root_is_refused() {
    let image = ImageConfig { volumes: vec!["/../../etc".into()], ..ImageConfig::default() };
    let Some(node) = node_with(image).await else { return };
    let sandbox = node.runtime().run_pod_sandbox(&node.sandbox()).await.unwrap();
    let outcome = node.runtime().create_container(&sandbox.id, &container(&["true"])).await;
    assert!(matches!(outcome, Err(RuntimeError::InvalidConfig { .. })), "{outcome:?}");
    node.finish().await;
}

#[tokio::test]
async fn image_user_is_never_root_by_mistake() {
    for user in ["4294967296", "-1", "nobody-here", "2147483648"] {
        let image = ImageConfig { user: Some(user.into()), ..ImageConfig::default() };
        let Some(node) = node_with(image).await else { return };
        let sandbox = node.runtime().run_pod_sandbox(&node.sandbox()).await.unwrap();
        let outcome = node.runtime().create_container(&sandbox.id, &container(&["true"])).await;
        assert!(matches!(outcome, Err(RuntimeError::InvalidConfig { .. })), "{user}: {outcome:?}");
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
    let Some(node) = node_with(image).await else { return };
    let (code, log) = node.output(&container(&[])).await;
    assert_eq!(code, 0);
    assert!(log.contains("uid=1000(web) gid=1000(web) groups=1000(web),2000(extra)"), "{log}");
    assert!(log.contains("/made/here\nhi\n"), "{log}");
    node.finish().await;
}
