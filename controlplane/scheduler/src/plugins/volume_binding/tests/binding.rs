//! What is assumed, written and waited for.

use std::sync::Mutex;

use coracle_client::cache::Key;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::Value;

use super::*;
use crate::{
    framework::PreBind,
    plugins::volume_binding::{
        check::{CheckError, Written, is_complete},
        reserve::Reserved,
    },
    storage::version,
};

/// Upstream's.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

/// A pod and the node that it is for.
struct Placed {
    pod: PodInfo,
    node: NodeInfo,
    cycle: CycleState,
}

impl Placed {
    /// The pod is given the node, which has to do.
    fn reserve(world: &World, claims: &[&str], on: &str) -> Self {
        let (pod, node) = (pod_using("p", claims), info(&node(on, "4")));
        let (mut cycle, status) = pre_filter(world, &pod);
        assert!(status.is_success(), "{status:?}");
        let status = plugin(world).reserve(&mut cycle, &pod, &node);
        assert!(status.is_success(), "{status:?}");
        Self { pod, node, cycle }
    }

    fn give_back(&mut self, world: &World) {
        plugin(world).unreserve(&mut self.cycle, &self.pod, &self.node.name);
    }

    fn reserved(&self) -> &Reserved {
        self.cycle.read().expect("it is reserved")
    }
}

fn world() -> World {
    let world = World::default();
    world.waiting_class("static", "kubernetes.io/no-provisioner");
    world.waiting_class("dynamic", "example.org/p");
    world.claim("c", "static", "1Gi");
    world.claim("d", "static", "1Gi");
    world.claim("e", "dynamic", "1Gi");
    world.volume("v", "static", "1Gi", Some("a"));
    world
}

#[test]
fn a_volume_that_is_assumed_is_nobody_elses_until_it_is_given_back() {
    let world = world();
    let mut first = Placed::reserve(&world, &["c"], "a");
    let second = pod_using("q", &["d"]);
    assert!(!filter(&world, &second, "a").is_success());
    first.give_back(&world);
    assert!(filter(&world, &second, "a").is_success());
    // Once more, when the volume is somebody else's.
    let _second = Placed::reserve(&world, &["d"], "a");
    first.give_back(&world);
    assert!(!filter(&world, &pod_using("q", &["c"]), "a").is_success());
}

#[test]
fn a_claim_is_assumed_to_be_for_the_node() {
    let world = world();
    let mut placed = Placed::reserve(&world, &["e"], "a");
    assert!(!filter(&world, &pod_using("q", &["e"]), "b").is_success());
    placed.give_back(&world);
    assert!(filter(&world, &pod_using("q", &["e"]), "b").is_success());
}

#[test]
fn nothing_is_assumed_of_what_has_changed_since() {
    let world = world();
    let pod = pod_using("p", &["c", "e"]);
    let (mut cycle, _) = pre_filter(&world, &pod);
    world.claim("e", "dynamic", "1Gi");
    let status = plugin(&world).reserve(&mut cycle, &pod, &info(&node("a", "4")));
    assert!(status.message().contains("is out of sync"), "{status:?}");
    assert!(cycle.read::<Reserved>().is_none());
    assert!(filter(&world, &pod_using("q", &["d"]), "a").is_success());
}

#[test]
fn a_volume_is_given_to_a_claim_as_the_controller_would() {
    let world = world();
    let mut kept = free("static", "1Gi", Some("b"));
    kept["claimRef"] = json!({"namespace": "default", "name": "d"});
    world.volume_with("kept", kept.clone());
    let given = |claim: &str, on: &str| {
        let mut placed = Placed::reserve(&world, &[claim], on);
        placed.give_back(&world);
        let one = &placed.reserved().matches[0];
        let annotations = one.volume.metadata.annotations.clone().unwrap_or_default();
        let reference = coracle_api::volume::claim_of(&one.volume)
            .expect("a claim")
            .clone();
        let by_controller = annotations.contains_key("pv.kubernetes.io/bound-by-controller");
        (one.is_new, by_controller, reference.uid)
    };
    assert_eq!(given("c", "a"), (true, true, Some("uid-of-c".to_owned())));
    assert_eq!(given("d", "b"), (true, false, Some("uid-of-d".to_owned())));
    kept["claimRef"]["uid"] = json!("uid-of-d");
    world.volume_with("kept", kept);
    assert_eq!(given("d", "b"), (false, false, Some("uid-of-d".to_owned())));
}

#[tokio::test]
async fn bound_claims_leave_nothing_to_do() {
    let world = world();
    world.bound_claim("c", "v");
    let placed = Placed::reserve(&world, &["c"], "a");
    assert!(placed.reserved().is_empty());
    let pre_bind = VolumePreBind::new(world.storage.clone(), refusing(), TIMEOUT);
    assert!(!pre_bind.has_work(&placed.cycle));
}

/// Of a pod whose claim `c` has been given the volume `v`, and that waits for one to be made for
/// `e`.
fn waiting(world: &World) -> (Placed, Written) {
    let placed = Placed::reserve(world, &["c", "e"], "a");
    let mut given = free("static", "1Gi", Some("a"));
    given["claimRef"] = json!({"namespace": "default", "name": "c", "uid": "uid-of-c"});
    world.volume_with("v", given);
    select(world, "a");
    let volume_version = {
        let storage = world.storage.lock();
        version(
            &**storage
                .volumes()
                .seen(&Key::new("", "v"))
                .expect("it is there"),
        )
    };
    let written = Written {
        matches: vec![(Key::new("", "v"), volume_version, Key::new("default", "c"))],
        provisions: vec![(Key::new("default", "e"), version(&*world.claim_now("e")))],
    };
    (placed, written)
}

fn select(world: &World, node: &str) {
    let metadata = json!({"annotations": {"volume.kubernetes.io/selected-node": node}});
    world.claim_with("e", metadata, unbound("dynamic", "1Gi"));
}

fn complete(world: &World, placed: &Placed, written: &Written) -> Result<bool, CheckError> {
    is_complete(&world.storage.lock(), &placed.pod, written)
}

#[test]
fn a_binding_is_complete_once_all_claims_are_bound() {
    let world = world();
    let (placed, written) = waiting(&world);
    assert_eq!(complete(&world, &placed, &written), Ok(false));
    world.bound_claim("c", "v");
    assert_eq!(complete(&world, &placed, &written), Ok(false));
    let bound = json!({"annotations": {
        "volume.kubernetes.io/selected-node": "a",
        "pv.kubernetes.io/bind-completed": "yes",
    }});
    let mut spec = unbound("dynamic", "1Gi");
    spec["volumeName"] = json!("made");
    world.claim_with("e", bound, spec);
    // The volume is on its way here.
    assert_eq!(complete(&world, &placed, &written), Ok(false));
    world.volume("made", "dynamic", "1Gi", Some("a"));
    assert_eq!(complete(&world, &placed, &written), Ok(true));
}

#[test]
fn what_was_written_is_waited_for() {
    let world = world();
    let (placed, mut written) = waiting(&world);
    // By somebody else before it was written.
    select(&world, "b");
    written.provisions[0].1 = u64::MAX;
    assert_eq!(complete(&world, &placed, &written), Ok(false));
}

/// What is made of a wait for the volumes of a pod on `a` after something has happened.
fn after(happens: impl FnOnce(&World, &Placed)) -> String {
    let world = world();
    let (placed, written) = waiting(&world);
    world.bound_claim("c", "v");
    happens(&world, &placed);
    complete(&world, &placed, &written)
        .expect_err("it is hopeless")
        .to_string()
}

#[test]
fn a_hopeless_wait_ends() {
    let tell = |world: &World, tell: &dyn Fn(&mut crate::storage::Storage) -> bool| {
        assert!(world.storage.change(tell));
    };
    let bound_elsewhere = || {
        json!({"annotations": {
            "volume.kubernetes.io/selected-node": "a",
            "pv.kubernetes.io/bind-completed": "yes",
        }})
    };
    assert_eq!(
        after(|world, _| select(world, "b")),
        "provisioning failed for PVC \"e\""
    );
    assert_eq!(
        after(|world, _| world.claim("e", "dynamic", "1Gi")),
        "provisioning failed for PVC \"e\""
    );
    assert_eq!(
        after(|world, _| world.volume("v", "static", "1Gi", Some("a"))),
        "ClaimRef got reset for pv \"v\""
    );
    assert_eq!(
        after(|world, _| {
            world.volume("made", "dynamic", "1Gi", Some("b"));
            let mut spec = unbound("dynamic", "1Gi");
            spec["volumeName"] = json!("made");
            world.claim_with("e", bound_elsewhere(), spec);
        }),
        "pv \"made\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms"
    );
    assert_eq!(
        after(|world, placed| {
            let mut moved = placed.node.clone();
            moved.labels.clear();
            tell(world, &|it| it.bindings.node_changed("a", Some(&moved)));
        }),
        "pv \"v\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms"
    );
    assert_eq!(
        after(|world, _| tell(world, &|it| it.bindings.node_changed("a", None))),
        "failed to get node \"a\": node \"a\" not found"
    );
    assert_eq!(
        after(|world, placed| tell(world, &|it| it.bindings.pod_gone(&placed.pod.uid))),
        "pod does not exist any more: pod \"p\" not found"
    );
}

/// An API server that knows nothing.
fn refusing() -> Client {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "message": "no",
        "reason": "Conflict"});
    answering(move |_, _| (409, status.clone()))
}

/// An API server that gives these answers to the paths and bodies of requests.
fn answering(
    answer: impl Fn(&str, Value) -> (u16, Value) + Clone + Send + Sync + 'static,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await?;
            let sent = serde_json::from_slice(&body).unwrap_or_default();
            let (code, said) = answer(&path, sent);
            let body = Body::from(said.to_string().into_bytes());
            Ok::<_, kube::Error>(
                Response::builder()
                    .status(code)
                    .body(body)
                    .expect("a response"),
            )
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_refused_write_fails_the_binding() {
    let world = world();
    let placed = Placed::reserve(&world, &["c"], "a");
    let pre_bind = VolumePreBind::new(world.storage.clone(), refusing(), TIMEOUT);
    assert!(pre_bind.has_work(&placed.cycle));
    let status = pre_bind.pre_bind(&placed.cycle, &placed.pod, "a").await;
    let message = status.message();
    let start = "running PreBind plugin \"VolumeBinding\": update persistentvolume v: ";
    assert!(message.starts_with(start), "{message}");
}

#[tokio::test(start_paused = true)]
async fn what_is_decided_is_written_once_and_waited_for_in_vain_for_ten_minutes() {
    let world = world();
    let placed = Placed::reserve(&world, &["c", "e"], "a");
    let written: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let seen = written.clone();
    let client = answering(move |path, sent| {
        seen.lock().expect("no panic").push((path.to_owned(), sent));
        (
            200,
            json!({"metadata": {"name": "any", "resourceVersion": "100"}}),
        )
    });
    let versions = {
        let reserved = placed.reserved();
        (
            reserved.matches[0].volume.metadata.resource_version.clone(),
            reserved.provisions[0].metadata.resource_version.clone(),
        )
    };
    let start = tokio::time::Instant::now();
    let status = VolumePreBind::new(world.storage.clone(), client, TIMEOUT)
        .pre_bind(&placed.cycle, &placed.pod, "a")
        .await;
    assert_eq!(start.elapsed(), TIMEOUT);
    assert_eq!(
        status.message(),
        "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded"
    );
    let claim_version = {
        let storage = world.storage.lock();
        let claim = storage.claims().seen(&Key::new("default", "c"));
        claim
            .expect("it is there")
            .metadata
            .resource_version
            .clone()
    };
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c",
        "uid": "uid-of-c", "resourceVersion": claim_version});
    let bound = json!({"metadata": {
        "resourceVersion": versions.0, "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": reference}});
    let selected = json!({"metadata": {
        "resourceVersion": versions.1, "annotations": {"volume.kubernetes.io/selected-node": "a"}}});
    assert_eq!(
        *written.lock().expect("no panic"),
        [
            ("/api/v1/persistentvolumes/v".to_owned(), bound),
            (
                "/api/v1/namespaces/default/persistentvolumeclaims/e".to_owned(),
                selected
            ),
        ]
    );
}
