//! From SQLite and back.

use coracle_store::{
    RangeRequest, copy,
    sqlite::{SqliteBackend, SqliteOptions},
};

use super::*;

async fn objects(store: &dyn Backend) -> Vec<(String, bytes::Bytes)> {
    let request = RangeRequest {
        prefix: "/registry/".to_owned(),
        ..RangeRequest::default()
    };
    let found = store.range(request).await.unwrap();
    found
        .items
        .into_iter()
        .map(|kv| (kv.key.to_string(), kv.value))
        .collect()
}

#[tokio::test]
async fn everything_goes_to_etcd_and_back_and_revisions_only_grow() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteBackend::open(dir.path()).unwrap();
    for n in 0..1000 {
        let name = (n % 400).to_string();
        put(&sqlite, &name, &format!("{n} {}", "x".repeat(3000)))
            .await
            .unwrap();
    }
    let before = objects(&sqlite).await;
    let past = sqlite.current_revision().await.unwrap();
    let copying = EtcdBackend::begin_copy(&etcd.config(), OWNER, past)
        .await
        .unwrap();
    let copied = copy::copy(&sqlite, &copying).await.unwrap();
    eprintln!("{copied:?}");
    assert_eq!((copied.keys, copied.from), (400, past));
    // Until it is finished, it is nobody's.
    let said = refused(&etcd.config()).await;
    assert!(said.contains("was not finished"), "{said}");
    copying.finish_copy().await.unwrap();
    drop(copying);
    let store = open(&etcd).await;
    assert_eq!(objects(&store).await, before);
    let next = put(&store, "0", "after").await.unwrap();
    assert!(next > copied.to && copied.to > past);
    let old = store.watch("/registry/", past).await.err();
    assert!(matches!(old, Some(StoreError::Compacted { .. })), "{old:?}");
    // A second copy over it is refused.
    let again = EtcdBackend::begin_copy(&etcd.config(), OWNER, past)
        .await
        .err();
    assert!(again.unwrap().to_string().contains("is not empty"));

    let current = store.current_revision().await.unwrap();
    let back = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        begin_after: current,
        ..SqliteOptions::default()
    };
    let sqlite = SqliteBackend::open_with(back.path(), options).unwrap();
    let copied = copy::copy(&store, &sqlite).await.unwrap();
    assert!(copied.to > current);
    assert_eq!(objects(&sqlite).await, objects(&store).await);
}
