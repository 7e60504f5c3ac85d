//! Whose data it is: what is not ours stays as it is.

use super::*;

async fn all(etcd: &Etcd) -> Vec<(String, String)> {
    let options = etcd_client::GetOptions::new().with_all_keys();
    let mut found = client(etcd).await.get("", Some(options)).await.unwrap();
    found
        .take_kvs()
        .iter()
        .map(|kv| {
            (
                kv.key_str().unwrap().to_owned(),
                kv.value_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[tokio::test]
async fn what_is_not_ours_is_refused_and_left_alone() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    put(&store, "a", "1").await.unwrap();
    drop(store);
    let mut outside = client(&etcd).await;
    for (prefix, record) in [
        (
            "/older",
            r#"{"dataVersion":0,"owner":"sha256:test","etcdCluster":"1"}"#,
        ),
        (
            "/newer",
            r#"{"dataVersion":9,"owner":"sha256:test","etcdCluster":"1"}"#,
        ),
        ("/strange", "k8s\0"),
    ] {
        outside
            .put(format!("{prefix}/.cluster"), record, None)
            .await
            .unwrap();
    }
    outside
        .put("/registry/pods/ns/a", "k8s\0", None)
        .await
        .unwrap();
    let before = all(&etcd).await;
    for (prefix, expected) in [
        ("/registry", "something else than Coracle"),
        ("/strange", "something else than Coracle"),
        ("/older", "holds data of version 0"),
        ("/newer", "holds data of version 9"),
    ] {
        let mut config = etcd.config();
        config.prefix = prefix.to_owned();
        let said = refused(&config).await;
        assert!(said.contains(expected), "{said}");
        eprintln!("{said}");
    }
    let Err(error) = EtcdBackend::open(&etcd.config(), "sha256:other").await else {
        panic!("another cluster's data was taken")
    };
    assert!(
        error.to_string().contains("holds another cluster"),
        "{error}"
    );
    eprintln!("{error}");
    assert_eq!(all(&etcd).await, before);
    let store = open(&etcd).await;
    assert_eq!(value(&store, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn prefixes_of_one_etcd_are_apart() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (mut one, mut other) = (etcd.config(), etcd.config());
    one.prefix = "/a".to_owned();
    other.prefix = "/ab".to_owned();
    let one = EtcdBackend::open(&one, "sha256:one").await.unwrap();
    let other = EtcdBackend::open(&other, "sha256:other").await.unwrap();
    put(&one, "x", "1").await.unwrap();
    assert_eq!(value(&one, "x").await.as_deref(), Some("1"));
    assert_eq!(value(&other, "x").await, None);
}

#[tokio::test]
async fn members_of_different_etcds_are_not_taken_for_one() {
    let (Some(one), Some(other)) = (
        Etcd::start_with(1, "http", &token("one")),
        Etcd::start_with(1, "http", &token("two")),
    ) else {
        return;
    };
    let config = EtcdConfig::new([one.urls(), other.urls()].concat());
    let store = EtcdBackend::open(&config, OWNER).await.unwrap();
    put(&store, "a", "1").await.unwrap();
    let status = coracle_store_etcd::status::status(&config).await.unwrap();
    let said: Vec<String> = status
        .members
        .iter()
        .map(|member| match &member.said {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        })
        .collect();
    assert!(
        said[0].is_empty() && said[1].contains("no member of the etcd"),
        "{said:?}"
    );
}

fn token(name: &str) -> [String; 1] {
    [format!("--initial-cluster-token={name}")]
}

#[tokio::test]
async fn nobody_there_is_told_in_a_sentence() {
    let config = EtcdConfig::new(vec!["http://127.0.0.1:9".to_owned()]);
    let said = refused(&config).await;
    assert!(
        said.contains("etcd at http://127.0.0.1:9 cannot be reached"),
        "{said}"
    );
    eprintln!("{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_at_once_on_nothing_are_of_one_cluster() {
    let Some(etcd) = Etcd::start(1) else { return };
    let servers = (0..12).map(async |n: usize| {
        let store = open(&etcd).await;
        // Before the others have looked.
        put(&store, &n.to_string(), "first").await.unwrap();
    });
    futures::future::join_all(servers).await;
}
