//! What pods get by their claims, of an API that is a table.

use std::{collections::HashMap, convert::Infallible, os::unix::fs::MetadataExt};

use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// Objects by the end of their path; requests are counted.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<(HashMap<String, Value>, usize)>>);

impl Table {
    fn put(&self, path: &str, object: Value) {
        self.0.lock().0.insert(path.to_owned(), object);
    }

    fn asked(&self) -> usize {
        self.0.lock().1
    }

    fn client(&self) -> kube::Client {
        let table = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().to_owned();
            let mut table = table.0.lock();
            table.1 += 1;
            let found = table.0.iter().find(|(end, _)| path.ends_with(end.as_str()));
            let missing = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "not found", "reason": "NotFound", "code": 404});
            let (code, body) = found.map_or((404, missing), |(_, object)| (200, object.clone()));
            let answer = http::Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.expect("an answer")) }
        });
        kube::Client::new(service, "default")
    }
}

/// A server that has nothing.
pub(super) fn nobody() -> kube::Client {
    Table::default().client()
}

pub(super) fn manager(root: &Path, client: kube::Client) -> VolumeManager {
    let mut config = AgentConfig::new("n1", "192.0.2.1".parse().expect("address"));
    config.data_dir = root.to_owned();
    for dir in [
        config.storage_dir(),
        config.local_volumes_dir(),
        config.pods_dir(),
    ] {
        std::fs::create_dir_all(dir).expect("directory");
    }
    let machine = Arc::new(Machine::read(&config));
    let (events, _) = EventRecorder::new(client.clone(), "n1");
    VolumeManager::new(VolumeParts {
        config,
        objects: Arc::new(Objects::new(client.clone())),
        client,
        mounter: Arc::new(NoMounts),
        machine,
        events,
        node: NodeView::default(),
    })
}

/// A node, and a claim `data` that is bound to the local volume `v`, the directory `disk`.
struct World {
    root: tempfile::TempDir,
    table: Table,
    manager: VolumeManager,
}

impl World {
    fn new(volume: Value) -> Self {
        let root = tempfile::tempdir().expect("directory");
        let table = Table::default();
        let manager = manager(root.path(), table.client());
        let world = Self {
            root,
            table,
            manager,
        };
        std::fs::create_dir(world.disk()).expect("directory");
        world.put(volume);
        world.table.put(
            "/default/persistentvolumeclaims/data",
            json!({"metadata": {"name": "data", "uid": "claim-1"}, "spec": {"volumeName": "v"},
                "status": {"phase": "Bound"}}),
        );
        world
    }

    fn put(&self, mut volume: Value) {
        volume["metadata"]["name"] = "v".into();
        volume["metadata"]["uid"] = "volume-1".into();
        volume["spec"]["claimRef"] = json!({"uid": "claim-1"});
        if volume["spec"]["hostPath"].is_null() {
            volume["spec"]["local"] = json!({"path": self.disk()});
        }
        self.table.put("/persistentvolumes/v", volume);
    }

    fn disk(&self) -> PathBuf {
        self.root.path().join("disk")
    }

    async fn ensure(&self, pod: &Pod) -> Result<MountedVolumes, String> {
        let made = self.manager.ensure(pod, Duration::ZERO).await;
        made.map_err(|error| ErrorChain(&error).to_string())
    }
}

fn pod(uid: &str, context: Value, read_only: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "securityContext": context,
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": read_only}}],
            "containers": [{"name": "c", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
        },
    }))
    .expect("pod")
}

fn plain(uid: &str) -> Pod {
    pod(uid, json!({}), false)
}

#[tokio::test]
async fn a_claim_is_asked_for_once_and_may_go_under_a_running_pod() {
    let world = World::new(json!({}));
    let made = world.ensure(&plain("p")).await.expect("volumes");
    assert_eq!(
        (&made["d"].path, made["d"].read_only),
        (&world.disk(), false)
    );
    let asked = world.table.asked();
    world.table.0.lock().0.clear();
    assert_eq!(world.ensure(&plain("p")).await.expect("as before"), made);
    // Another run of the agent.
    let later = manager(world.root.path(), world.table.client());
    let again = later
        .ensure(&plain("p"), Duration::ZERO)
        .await
        .expect("on record");
    assert_eq!((again, world.table.asked()), (made, asked));
    let error = world
        .ensure(&plain("q"))
        .await
        .expect_err("a new pod has no claim");
    assert_eq!(
        error,
        "Unable to attach or mount volumes: unmounted volumes=[d], unattached volumes=[], failed to process \
         volumes=[d]: error processing PVC default/data: failed to fetch PVC from API server: not found"
    );
    let uid = PodUid("p".to_owned());
    world.manager.teardown(&uid).await.expect("teardown");
    assert!(
        world.disk().is_dir(),
        "what a volume is of is not the pod's"
    );
    world
        .ensure(&plain("p"))
        .await
        .expect_err("nothing is on record any more");
}

#[tokio::test]
async fn a_host_path_may_be_a_persistent_volume_as_well() {
    let world = World::new(json!({}));
    let file = world.root.path().join("file");
    world.put(json!({"spec": {"hostPath": {"path": file, "type": "FileOrCreate"}}}));
    let group = pod("p", json!({"fsGroup": 7000}), true);
    let made = world.ensure(&group).await.expect("volumes");
    assert_eq!((&made["d"].path, made["d"].read_only), (&file, true));
    assert_ne!(std::fs::metadata(&file).expect("made").gid(), 7000);
    let held = world.manager.records().of_pod(&PodUid("p".to_owned()));
    assert!(held.expect("read")[0].claimed.ready);
}

#[tokio::test]
async fn what_keeps_a_volume_from_a_pod_is_told_in_upstreams_words() {
    let world = World::new(json!({}));
    let away = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]);
    let options = json!({"spec": {"mountOptions": ["noatime"]}});
    let away = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": away}}}});
    let none = json!({"spec": {"hostPath": {"path": world.root.path().join("none"), "type": "Directory"}}});
    for (volume, expect) in [
        (
            away,
            "MountVolume.NodeAffinity check failed for volume \"v\" : no matching NodeSelectorTerms".to_owned(),
        ),
        (
            options,
            "MountVolume.MountOptionSupport check failed for volume \"v\" : mount options are not supported for this \
             volume type"
                .to_owned(),
        ),
        (
            none,
            format!(
                "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} is not a directory",
                world.root.path().join("none").display()
            ),
        ),
    ] {
        world.put(volume);
        assert_eq!(world.ensure(&plain("p")).await.expect_err("refused"), expect);
    }
    world.put(json!({}));
    std::fs::remove_dir(world.disk()).expect("remove");
    let expect = format!(
        "MountVolume.NewMounter initialization failed for volume \"v\" : path {:?} does not exist",
        world.disk()
    );
    assert_eq!(
        world
            .ensure(&plain("p"))
            .await
            .expect_err("nothing is there"),
        expect
    );
    std::fs::write(world.disk(), "").expect("file");
    let error = world.ensure(&plain("p")).await.expect_err("a file");
    assert!(
        error.ends_with("only directory and block device are supported"),
        "{error}"
    );
}

#[tokio::test]
async fn a_volume_for_one_pod_is_given_to_one() {
    let world = World::new(json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}));
    world.ensure(&plain("p")).await.expect("volumes");
    world.ensure(&plain("p")).await.expect("again");
    let error = world.ensure(&plain("q")).await.expect_err("taken");
    assert_eq!(
        error,
        "MountVolume.SetUp failed for volume \"v\" : volume uses the ReadWriteOncePod access mode and is already in \
         use by another pod"
    );
    world
        .manager
        .teardown(&PodUid("p".to_owned()))
        .await
        .expect("teardown");
    world.ensure(&plain("q")).await.expect("free again");
}

#[tokio::test]
async fn a_local_volume_is_the_group_of_the_pod_that_has_it_first() {
    let world = World::new(json!({}));
    let file = world.disk().join("f");
    std::fs::write(&file, "").expect("file");
    let gid = || std::fs::metadata(&file).expect("file").gid();
    let with =
        |uid: &str, group: i64, read_only: bool| pod(uid, json!({"fsGroup": group}), read_only);
    world
        .ensure(&with("reader", 7001, true))
        .await
        .expect("volumes");
    assert_ne!(gid(), 7001, "who only reads changes nothing");
    world
        .manager
        .teardown(&PodUid("reader".to_owned()))
        .await
        .expect("teardown");
    world
        .ensure(&with("p", 7001, false))
        .await
        .expect("volumes");
    assert_eq!(gid(), 7001);
    std::os::unix::fs::chown(&file, None, Some(0)).expect("chown");
    world.ensure(&with("p", 7001, false)).await.expect("again");
    assert_eq!(gid(), 0, "once a pod");
    world
        .ensure(&with("q", 7002, false))
        .await
        .expect("volumes");
    assert_eq!(gid(), 0, "another pod has it");
    for uid in ["p", "q"] {
        world
            .manager
            .teardown(&PodUid(uid.to_owned()))
            .await
            .expect("teardown");
    }
    let lazy = json!({"fsGroup": 7001, "fsGroupChangePolicy": "OnRootMismatch"});
    world.ensure(&pod("r", lazy, false)).await.expect("volumes");
    assert_eq!(gid(), 0, "the root is the group's");
    world
        .manager
        .teardown(&PodUid("r".to_owned()))
        .await
        .expect("teardown");
    world
        .ensure(&with("s", 7002, false))
        .await
        .expect("volumes");
    assert_eq!(gid(), 7002);
}

#[tokio::test]
async fn what_the_cluster_made_for_the_node_is_made_by_it_and_not_made_again() {
    let world = World::new(json!({}));
    let path = world
        .manager
        .place
        .config
        .storage_dir()
        .join("v_default_data");
    let mut volume = json!({"metadata": {
        "name": "v", "uid": "volume-1", "labels": {"local-path.coracle.dev/node": "n1"},
        "annotations": {"pv.kubernetes.io/provisioned-by": "coracle.dev/local-path"},
    }, "spec": {
        "claimRef": {"uid": "claim-1", "namespace": "default", "name": "data"}, "local": {"path": path},
    }});
    world.table.put("/persistentvolumes/v", volume.clone());
    let made = world.ensure(&plain("p")).await.expect("volumes");
    assert_eq!(made["d"].path, path);
    assert!(path.is_dir());
    std::fs::remove_dir(&path).expect("remove");
    for uid in ["p", "q"] {
        let error = world.ensure(&plain(uid)).await.expect_err("gone");
        assert!(
            error.contains("is gone from this node; it is not made again"),
            "{error}"
        );
    }
    assert!(!path.exists());
    let elsewhere = world.root.path().join("elsewhere");
    volume["metadata"]["uid"] = "volume-2".into();
    volume["spec"]["local"]["path"] = json!(elsewhere);
    world.table.put("/persistentvolumes/v", volume);
    let error = world.ensure(&plain("r")).await.expect_err("foreign");
    assert!(
        error.contains("is not the one that this node makes for it"),
        "{error}"
    );
    assert!(!elsewhere.exists());
}

#[tokio::test]
async fn a_volumes_own_group_and_its_figures_are_known() {
    let world =
        World::new(json!({"metadata": {"annotations": {"pv.beta.kubernetes.io/gid": "4321"}}}));
    assert_eq!(world.manager.usage(&plain("p")).await, Vec::new());
    let made = world.ensure(&plain("p")).await.expect("volumes");
    assert_eq!(made["d"].group, Some(4321));
    let used = world.manager.usage(&plain("p")).await;
    let one = used.first().expect("figures");
    assert_eq!(
        (one.name.as_str(), one.claim.as_str(), used.len()),
        ("d", "data", 1)
    );
    assert!(one.room.capacity_bytes >= one.room.available_bytes && one.room.capacity_bytes > 0);
    assert_eq!(one.room.inodes, one.room.inodes_free + one.room.inodes_used);
}

#[tokio::test]
async fn what_no_container_uses_is_not_looked_for() {
    let world = World::new(json!({}));
    let mut unused = plain("p");
    let spec = unused.spec.as_mut().expect("spec");
    spec.containers[0].volume_mounts = None;
    assert_eq!(
        world.ensure(&unused).await.expect("nothing to do"),
        MountedVolumes::new()
    );
    assert_eq!(world.table.asked(), 0);
}
