//! Two servers over one store: what one has given out, refused or told, the other knows.

mod definitions;

use std::{collections::BTreeMap, sync::Arc};

use coracle_auth::user::UserInfo;
use coracle_store::{Backend, memory::MemoryBackend, testing::FailingBackend};
use futures::{StreamExt as _, future::join_all, stream};
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, config_map, pod};
use crate::{server::ApiServer, testing};

const NAMESPACES: &str = "/api/v1/namespaces";
const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Requests of one server under way.
const AT_ONCE: usize = 16;

/// Two administrators, each of a server of his own, and the second one's way to the store.
struct Two {
    one: Raw,
    other: Raw,
    way: Arc<FailingBackend>,
    server: Arc<ApiServer>,
}

impl Two {
    async fn start() -> Self {
        let store: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        let backend = || Arc::new(FailingBackend::over(Arc::clone(&store)).shared().far());
        let way = backend();
        // At the same moment, on an empty store.
        let (one, other) = tokio::join!(
            testing::server_over(backend()),
            testing::server_over(Arc::clone(&way) as Arc<dyn Backend>)
        );
        let raw = |server| Raw::of(server, UserInfo::master("test"));
        Self {
            one: raw(&one),
            other: raw(&other),
            way,
            server: one,
        }
    }

    /// Whoever is next.
    fn of(&self, n: usize) -> &Raw {
        if n.is_multiple_of(2) {
            &self.one
        } else {
            &self.other
        }
    }

    /// Makes all of them through both, many at the same time.
    async fn post_all(&self, path: &str, objects: Vec<Value>) -> Vec<(u16, Value)> {
        let posts = objects.into_iter().enumerate();
        let posts = posts.map(|(n, object)| self.of(n).post(path, object));
        stream::iter(posts)
            .buffered(2 * AT_ONCE)
            .collect::<Vec<_>>()
            .await
    }

    /// The other server hears nothing more of the store, and may still write to it.
    fn deafen(&self) {
        self.way.set_away(true);
        self.way.cut_watch();
    }
}

fn service(name: &str, spec: Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    if object["spec"]["ports"].is_null() {
        object["spec"]["ports"] = json!([{"port": 80}]);
    }
    object
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_both_give_out_is_given_once() {
    let two = Two::start().await;
    let spec = json!({"type": "NodePort"});
    let services = (0..60).map(|n| service(&format!("drawn{n}"), spec.clone()));
    let made = two.post_all(SERVICES, services.collect()).await;
    let mut seen = BTreeMap::new();
    for (code, service) in made {
        assert_eq!(code, 201, "{service}");
        let spec = &service["spec"];
        for mine in [&spec["clusterIP"], &spec["ports"][0]["nodePort"]] {
            let before = seen.insert(mine.to_string(), service["metadata"]["name"].clone());
            assert_eq!(before, None, "{mine}");
        }
    }
    // All want the same five, of which none was drawn.
    let free = (31000..).filter(|port: &u16| !seen.contains_key(&port.to_string()));
    let free: Vec<u16> = free.take(5).collect();
    let chosen = |n: usize| {
        let (address, port) = (format!("10.96.0.{}", 100 + n % 5), free[n % 5]);
        service(
            &format!("chosen{n}"),
            json!({"type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": port}]}),
        )
    };
    let made = two.post_all(SERVICES, (0..60).map(chosen).collect()).await;
    let (first, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(|(code, _)| *code == 201);
    assert_eq!(first.len(), 5, "{first:?}");
    for (code, status) in refused {
        let message = status["message"].as_str().unwrap_or_default();
        let is_said = message.contains("is already allocated");
        assert!(code == 422 && is_said, "{code} {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_given_what_others_have_not() {
    let two = Two::start().await;
    let services = (0..40).map(|n| service(&format!("s{n}"), json!({})));
    two.post_all(SERVICES, services.collect()).await;
    // Those that are changed, and those that are made, draw at the same time.
    let two = &two;
    let patches = (0..40).map(|n| async move {
        let spec = json!({"spec": {"type": "NodePort"}});
        two.of(n).merge(&format!("{SERVICES}/s{n}"), spec).await
    });
    let more = (0..40).map(|n| service(&format!("m{n}"), json!({"type": "NodePort"})));
    let (patched, made) = tokio::join!(join_all(patches), two.post_all(SERVICES, more.collect()));
    let mut ports: Vec<u64> = Vec::new();
    for (code, service) in patched.into_iter().chain(made) {
        assert!(code < 300, "{service}");
        ports.extend(service["spec"]["ports"][0]["nodePort"].as_u64());
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_takes_nothing() {
    let two = Two::start().await;
    let chosen = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 31009}]});
    let dry = format!("{SERVICES}?dryRun=All");
    for n in 0..4 {
        let (code, shown) = two.of(n).post(&dry, service("a", chosen.clone())).await;
        assert_eq!(code, 201, "{shown}");
    }
    assert_eq!(
        two.one.post(SERVICES, service("a", chosen.clone())).await.0,
        201
    );
    let (code, refused) = two.other.post(&dry, service("b", chosen)).await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_goes_elsewhere_takes_nothing_new() {
    let two = Two::start().await;
    for name in ["goes", "gone"] {
        assert_eq!(two.one.post(NAMESPACES, namespace(name)).await.0, 201);
        let maps = format!("{NAMESPACES}/{name}/configmaps");
        assert_eq!(two.other.post(&maps, config_map("before")).await.0, 201);
    }
    two.deafen();
    for name in ["goes", "gone"] {
        let path = format!("{NAMESPACES}/{name}");
        let (code, status) = two.one.delete(&path, json!({})).await;
        assert_eq!(code, 200, "{status}");
    }
    let mut finished = namespace("gone");
    finished["spec"] = json!({"finalizers": []});
    let finalize = format!("{NAMESPACES}/gone/finalize");
    assert_eq!(two.one.put(&finalize, finished).await.0, 200);
    // As far as its own cache goes, both live.
    let maps = format!("{NAMESPACES}/goes/configmaps");
    let (code, status) = two.other.post(&maps, config_map("late")).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap_or_default()),
        (
            403,
            "configmaps \"late\" is forbidden: unable to create new content in namespace goes because it is being terminated"
        )
    );
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    let maps = format!("{NAMESPACES}/gone/configmaps");
    let (code, status) = two.other.post(&maps, config_map("late")).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap_or_default()),
        (404, "namespaces \"gone\" not found")
    );
    // Made anew, it takes objects again, whatever the cache still says.
    assert_eq!(two.one.post(NAMESPACES, namespace("gone")).await.0, 201);
    assert_eq!(two.other.post(&maps, config_map("new")).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_has_told_the_other_goes_on_with() {
    let two = Two::start().await;
    for n in 0..6 {
        two.of(n)
            .post(CONFIG_MAPS, config_map(&format!("c{n}")))
            .await;
    }
    two.deafen();
    for n in 6..8 {
        two.one
            .post(CONFIG_MAPS, config_map(&format!("c{n}")))
            .await;
    }
    let (_, begun) = two.one.get(&format!("{CONFIG_MAPS}?limit=3")).await;
    let version = begun["metadata"]["resourceVersion"].as_str().unwrap();
    let token = begun["metadata"]["continue"].as_str().unwrap();
    two.one
        .delete(&format!("{CONFIG_MAPS}/c7"), json!({}))
        .await;
    // It comes to hear of what it is asked about while it is asked.
    two.way.set_away(false);
    let (code, rest) = two
        .other
        .get(&format!("{CONFIG_MAPS}?continue={token}"))
        .await;
    assert_eq!(code, 200, "{rest}");
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        let name = |one: &Value| one["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    };
    assert_eq!(names(&rest), ["c3", "c4", "c5", "c6", "c7"]);
    assert_eq!(rest["metadata"]["resourceVersion"], version);
    let since = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1");
    let (code, events) = two.other.get(&since).await;
    let told = events
        .as_str()
        .map(str::to_owned)
        .unwrap_or_else(|| events.to_string());
    assert!(
        code == 200 && told.contains("DELETED") && told.contains("c7"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_used_up_and_never_passed() {
    let two = Two::start().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "15"}}});
    let (_, mut made) = two.one.post(quotas, quota).await;
    // As the controller would, after its first look.
    made["status"] = json!({"hard": {"pods": "15"}, "used": {"pods": "0"}});
    let (code, _) = two.one.put(&format!("{quotas}/q/status"), made).await;
    assert_eq!(code, 200);
    // Whoever has no quota in its cache charges none.
    two.other.get(quotas).await;
    let pods = (0..80).map(|n| pod(&format!("p{n}"))).collect();
    let answers = two.post_all(PODS, pods).await;
    let (admitted, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|(code, _)| *code == 201);
    assert_eq!(admitted.len(), 15);
    for (code, status) in refused {
        let message = status["message"].as_str().unwrap_or_default();
        let is_full = message.contains("exceeded quota: q, requested: pods=1, used: pods=15");
        assert!(code == 403 && is_full, "{code} {status}");
    }
    let (_, quota) = two.other.get(&format!("{quotas}/q")).await;
    assert_eq!(quota["status"]["used"], json!({"pods": "15"}));
}
