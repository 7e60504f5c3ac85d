//! A server's store in a file, and back in the place of what a stopped one has.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use super::config;
use crate::{
    Server, UserInfo,
    backup::{self, Existing, PendingFile, Source},
};

async fn stop(server: Server, shutdown: &CancellationToken) {
    shutdown.cancel();
    let stopped = tokio::time::timeout(Duration::from_secs(20), server.stopped());
    stopped.await.unwrap().unwrap();
}

fn config_maps(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(server.client(UserInfo::master("test")), "default")
}

fn named(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_server_is_restored_and_its_clients_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup.db"));
    let shutdown = CancellationToken::new();
    let server = Server::start(config(&data), shutdown.clone())
        .await
        .unwrap();
    config_maps(&server)
        .create(&PostParams::default(), &named("before"))
        .await
        .unwrap();
    let mut pending = PendingFile::create(&file, Existing::Keep).unwrap();
    assert_eq!(
        backup::copy_stopped(&data, &pending).unwrap(),
        Source::Running
    );
    let master = server.client(UserInfo::master("test"));
    backup::fetch(&master, &mut pending).await.unwrap();
    let contents = backup::finish(pending).unwrap();
    let after = config_maps(&server)
        .create(&PostParams::default(), &named("after"))
        .await
        .unwrap();
    let version = |map: &ConfigMap| -> u64 {
        let version = map.metadata.resource_version.as_deref();
        version.unwrap().parse().unwrap()
    };
    let refused = backup::put_back(&data, &file).unwrap_err();
    assert!(
        refused.to_string().contains("in use by another server"),
        "{refused}"
    );
    drop(master);
    stop(server, &shutdown).await;

    let restored = backup::put_back(&data, &file).unwrap();
    assert_eq!(restored.contents.keys, contents.keys);
    let shutdown = CancellationToken::new();
    let server = Server::start(config(&data), shutdown.clone())
        .await
        .unwrap();
    let maps = config_maps(&server);
    assert!(maps.get_opt("before").await.unwrap().is_some());
    assert!(maps.get_opt("after").await.unwrap().is_none());
    let again = maps
        .create(&PostParams::default(), &named("after"))
        .await
        .unwrap();
    assert!(version(&again) > version(&after), "no revision comes twice");
    // Who watched before is told to list anew.
    let watch = maps
        .watch_metadata(
            &kube::api::WatchParams::default(),
            &version(&after).to_string(),
        )
        .await;
    let first = match watch {
        Err(error) => format!("{error:?}"),
        Ok(events) => {
            let mut events = std::pin::pin!(events);
            format!("{:?}", futures::StreamExt::next(&mut events).await)
        }
    };
    assert!(first.contains("410"), "{first}");
    drop(maps);
    stop(server, &shutdown).await;
    // A stopped one is copied without asking anybody.
    let pending = PendingFile::create(&file, Existing::Replace).unwrap();
    assert_eq!(
        backup::copy_stopped(&data, &pending).unwrap(),
        Source::Stopped
    );
    backup::finish(pending).unwrap();
}
