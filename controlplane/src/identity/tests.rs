use coracle_apiserver::testing;
use coracle_telemetry::spawn;
use kube::api::ObjectMeta;

use super::*;

async fn leases() -> Api<Lease> {
    Api::namespaced(testing::server().await.client(user()), "kube-system")
}

fn identity() -> Identity {
    Identity {
        host: "h".to_owned(),
        holder: "h_1".to_owned(),
        address: Some("198.18.0.1:6443".parse().unwrap()),
    }
}

#[test]
fn names_are_upstreams() {
    // SHA-256 of `00 04 "node" 00 0e "kube-apiserver"`.
    let name = name("node");
    assert_eq!(name.len(), "apiserver-".len() + 26);
    assert_eq!(base32(b""), "");
    for (bytes, text) in [
        (&b"f"[..], "my"),
        (b"fo", "mzxq"),
        (b"foo", "mzxw6"),
        (b"foob", "mzxw6yq"),
        (b"fooba", "mzxw6ytb"),
        (b"foobar", "mzxw6ytboi"),
    ] {
        assert_eq!(base32(bytes), text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_tells_that_it_is_there_for_as_long_as_it_is() {
    let leases = leases().await;
    let stop = CancellationToken::new();
    let renewing = spawn("renew", renew(leases.clone(), identity(), stop.clone()));
    let name = name("h");
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..3 {
        tokio::time::sleep(RENEW + Duration::from_secs(1)).await;
        let lease = leases.get(&name).await.unwrap();
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("h_1"));
        assert_eq!(spec.lease_duration_seconds, Some(3600));
        let labels = lease.metadata.labels.unwrap();
        assert_eq!(labels[LABEL], "kube-apiserver");
        assert_eq!(labels[HOSTNAME], "h");
        versions.insert(lease.metadata.resource_version.unwrap());
    }
    assert_eq!(versions.len(), 3, "renewed each time: {versions:?}");
    // Deleted by somebody: it is there again.
    leases
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(3 * RENEW).await;
    leases.get(&name).await.unwrap();
    stop.cancel();
    renewing.await.unwrap();
}

#[tokio::test]
async fn leases_that_nobody_renews_go_and_others_stay() {
    let leases = leases().await;
    let now = Timestamp::now();
    let ago = |minutes: i64| Some(MicroTime(now - SignedDuration::from_mins(minutes)));
    for (name, label, renewed, duration) in [
        ("expired", KUBE_APISERVER, ago(120), Some(3600)),
        ("never-renewed", KUBE_APISERVER, None, Some(3600)),
        ("without-duration", KUBE_APISERVER, ago(1), None),
        ("fresh", KUBE_APISERVER, ago(2), Some(3600)),
        ("anothers", "somebody-else", ago(120), Some(3600)),
    ] {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(LABEL.to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            lease_duration_seconds: duration,
            renew_time: renewed,
            ..LeaseSpec::default()
        };
        let lease = Lease {
            metadata,
            spec: Some(spec),
        };
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
    sweep(&leases, now).await.unwrap();
    let left = leases.list(&ListParams::default()).await.unwrap();
    let left: Vec<&str> = left
        .iter()
        .filter_map(|lease| lease.metadata.name.as_deref())
        .collect();
    assert_eq!(left, ["anothers", "fresh"]);
}
