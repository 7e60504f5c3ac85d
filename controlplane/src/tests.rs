//! Whole control planes in this process.

mod backups;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod joining;
mod several;

use std::{
    net::SocketAddr, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration,
};

use coracle_store::{Backend, testing::FailingBackend};
use tokio_util::sync::CancellationToken;

use crate::{Server, ServerConfig, ServerError, StoreEngine, UserInfo, server, store};

fn config(dir: &Path) -> ServerConfig {
    ServerConfig::new(dir, SocketAddr::from(([127, 0, 0, 1], 0)))
}

async fn refused(config: ServerConfig) -> String {
    match Server::start(config, CancellationToken::new()).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_starts_and_stops_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::start(config(dir.path()), shutdown.clone())
        .await
        .unwrap();
    assert!(server.ready());
    let kubeconfig = dir.path().join("admin.kubeconfig");
    assert_eq!(
        std::fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    assert!(
        text.contains(&format!("server: https://{}", server.address())),
        "{text}"
    );
    let version = server
        .client(UserInfo::master("test"))
        .apiserver_version()
        .await
        .unwrap();
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "37")
    );
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), server.stopped())
        .await
        .unwrap()
        .unwrap();
    // Everything was let go: the same directory serves again.
    let shutdown = CancellationToken::new();
    let again = Server::start(config(dir.path()), shutdown.clone())
        .await
        .unwrap();
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), again.stopped())
        .await
        .unwrap()
        .unwrap();
}

/// What `/metrics` says.
async fn metrics(server: &Server) -> String {
    let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
    server
        .client(UserInfo::master("test"))
        .request_text(request)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_of_queues_and_scheduling() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::start(config(dir.path()), shutdown.clone())
        .await
        .unwrap();
    // The four namespaces that every cluster has pass this queue.
    let passed = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with("workqueue_adds_total{name=\"serviceaccount\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .unwrap_or(0.0)
            >= 4.0
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let mut text = metrics(&server).await;
    while !passed(&text) {
        assert!(tokio::time::Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        text = metrics(&server).await;
    }
    for name in [
        "# TYPE workqueue_depth gauge",
        "# TYPE workqueue_queue_duration_seconds histogram",
        "# TYPE scheduler_pending_pods gauge",
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 0",
        "scheduler_scheduling_attempt_duration_seconds_count",
    ] {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
    shutdown.cancel();
    server.stopped().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_said_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::start(config(dir.path()), shutdown.clone())
        .await
        .unwrap();
    let locked = refused(config(dir.path())).await;
    assert!(locked.contains("is in use by another server"), "{locked}");
    let elsewhere = ServerConfig {
        store: StoreEngine::Memory,
        ..config(dir.path())
    };
    assert_eq!(refused(elsewhere).await, locked, "whatever its store is");
    let kept = Server::keep_off(dir.path()).unwrap_err().to_string();
    assert_eq!(kept, locked, "nor can it be deleted");
    let other = tempfile::tempdir().unwrap();
    let mut taken = config(other.path());
    taken.bind = server.address();
    let message = refused(taken).await;
    let expect = format!(
        "cannot listen on {}: the address is in use by another process",
        server.address()
    );
    assert_eq!(message, expect);
    assert!(
        std::fs::read_dir(other.path()).unwrap().next().is_none(),
        "nothing is written before it listens"
    );
    let mut elsewhere = config(other.path());
    elsewhere.bind = "192.0.2.1:6443".parse().unwrap();
    assert!(
        refused(elsewhere)
            .await
            .contains("this machine has no such address")
    );
    let file = other.path().join("file");
    std::fs::write(&file, "").unwrap();
    let message = refused(config(&file.join("below"))).await;
    assert!(message.contains("is not writable"), "{message}");
    shutdown.cancel();
    server.stopped().await.unwrap();
    assert!(Server::keep_off(dir.path()).unwrap().is_some());
    let never = dir.path().join("never");
    assert!(Server::keep_off(&never).unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_closes_by_itself_ends_the_server_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let opened = store::open(&config, dir.path().join("server"))
        .await
        .unwrap();
    let backend = Arc::new(FailingBackend::over(opened.backend));
    let shutdown = CancellationToken::new();
    let opened = store::Opened {
        backend: Arc::clone(&backend) as Arc<dyn Backend>,
        ..opened
    };
    let listener = server::listen(config.bind).await.unwrap();
    let server_dir = dir.path().join("server");
    let server = Server::start_on(config, listener, opened, server_dir, shutdown)
        .await
        .unwrap();
    let client = server.client(UserInfo::master("test"));
    let check = |path: &str| hyper::Request::get(path).body(Vec::new()).unwrap();
    assert_eq!(
        client.request_text(check("/livez/store")).await.unwrap(),
        "ok"
    );
    backend.doubt();
    // The reason is for who asks for the one check.
    for (path, expected) in [
        ("/livez/store", "the disk is in doubt"),
        ("/readyz/store", "the disk is in doubt"),
        ("/livez", "[-]store failed: reason withheld"),
        ("/readyz", "[-]store failed: reason withheld"),
    ] {
        let why = format!("{:?}", client.request_text(check(path)).await.unwrap_err());
        assert!(why.contains(expected), "{path}: {why}");
    }
    drop(client);
    let ended = tokio::time::timeout(Duration::from_secs(30), server.stopped())
        .await
        .unwrap();
    assert!(
        matches!(ended, Err(ServerError::StoreClosed { .. })),
        "{ended:?}"
    );
}
