use std::sync::Arc;

use coracle_store::memory::MemoryBackend;
use coracle_telemetry::spawn;

use super::*;

fn identity(host: &str) -> Identity {
    Identity {
        host: host.to_owned(),
        holder: format!("{host}_1"),
        address: Some("198.18.0.1:6443".parse().unwrap()),
    }
}

async fn only(backend: &dyn Backend) -> Found {
    let mut found = find(backend).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_server_tells_that_it_lives_for_as_long_as_it_does() {
    let backend = Arc::new(MemoryBackend::new());
    let stop = CancellationToken::new();
    let (told, until) = (Arc::clone(&backend), stop.clone());
    let renewing = spawn("renew", async move {
        renew(&*told, &identity("h"), &until).await;
    });
    let mut last = Revision(0);
    for _ in 0..3 {
        tokio::time::sleep(RENEW + Duration::from_secs(1)).await;
        let found = only(&*backend).await;
        assert_eq!((&*found.host, found.name), ("h", identity::name("h")));
        assert_eq!(found.address, identity("h").address);
        assert!(found.renewed > last, "renewed each time");
        last = found.renewed;
    }
    // Removed by somebody: it is there again.
    withdraw(&*backend, &identity("h")).await.unwrap();
    tokio::time::sleep(RENEW + 2 * RENEW_AGAIN).await;
    only(&*backend).await;
    stop.cancel();
    renewing.await.unwrap();
    withdraw(&*backend, &identity("h")).await.unwrap();
    assert_eq!(find(&*backend).await.unwrap(), []);
}

#[tokio::test]
async fn a_renewal_that_comes_late_brings_nobody_back() {
    let backend = MemoryBackend::new();
    let known = renew_once(&backend, &identity("h"), None).await.unwrap();
    withdraw(&backend, &identity("h")).await.unwrap();
    let late = renew_once(&backend, &identity("h"), Some(known)).await;
    assert!(matches!(late, Err(RenewError::Taken { .. })), "{late:?}");
    assert_eq!(find(&backend).await.unwrap(), []);
}

#[tokio::test]
async fn only_what_nobody_has_renewed_is_forgotten() {
    let backend = MemoryBackend::new();
    let first = renew_once(&backend, &identity("h"), None).await.unwrap();
    let second = renew_once(&backend, &identity("h"), Some(first))
        .await
        .unwrap();
    let name = identity::name("h");
    forget(&backend, &name, first).await.unwrap();
    only(&backend).await;
    forget(&backend, &name, second).await.unwrap();
    assert_eq!(find(&backend).await.unwrap(), []);
}

#[tokio::test]
async fn a_key_leads_to_its_own_server_alone() {
    let backend = MemoryBackend::new();
    let told = serde_json::json!({"host": "other", "holder": "x", "address": "198.18.0.66:1"});
    for (name, value) in [
        (identity::name("h"), told.to_string()),
        (identity::name("i"), "{".to_owned()),
    ] {
        let put = Op::Put {
            key: key_of(&name).into(),
            value: value.into(),
        };
        let ops = vec![put];
        let written = backend.txn(Txn {
            ops,
            ..Txn::default()
        });
        written.await.unwrap();
    }
    let found = find(&backend).await.unwrap();
    assert_eq!(found.len(), 2, "whoever wrote it may run");
    assert!(
        found.iter().all(|found| found.address.is_none()),
        "{found:?}"
    );
}

#[cfg(feature = "etcd")]
#[tokio::test(start_paused = true)]
async fn who_was_killed_is_told_from_who_runs() {
    let backend = Arc::new(MemoryBackend::new());
    assert_eq!(running(&*backend).await.unwrap(), None);
    renew_once(&*backend, &identity("killed"), None)
        .await
        .unwrap();
    let began = Instant::now();
    assert_eq!(running(&*backend).await.unwrap(), None);
    assert!(began.elapsed() >= ALIVE);
    let stop = CancellationToken::new();
    let (told, until) = (Arc::clone(&backend), stop.clone());
    let renewing = spawn("renew", async move {
        renew(&*told, &identity("runs"), &until).await;
    });
    tokio::time::sleep(RENEW_AGAIN).await;
    let found = running(&*backend).await.unwrap().unwrap();
    assert_eq!(found.host, "runs");
    stop.cancel();
    renewing.await.unwrap();
}
