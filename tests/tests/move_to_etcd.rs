//! A cluster that runs moves from SQLite to etcd and back: its pods go on, and nothing is lost.

use std::{path::PathBuf, process::Command, time::Duration};

use coracle_tests::{
    binary,
    cluster::Cluster,
    is_root_or_skip,
    kubectl::Kubectl,
    process::{Process, succeed},
    tool, wait,
    workload::{identities, nginx_pids},
    workspace,
};

const ETCD: &str = "http://198.18.0.1:2379";
const START_DEADLINE: Duration = Duration::from_secs(60);

/// All that a user has made, and what controllers made of it.
const KEPT: &str = "get deployments,replicasets,services,configmaps,secrets,serviceaccounts,\
     clusterroles,clusterrolebindings,namespaces -A --sort-by=.metadata.uid \
     -o custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid,\
     GENERATION:.metadata.generation --no-headers";

#[test]
fn a_running_cluster_moves_to_etcd_and_back() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(1, &[]);
    let kubectl = cluster.kubectl();
    let example = workspace().join("examples/nginx.yaml");
    kubectl.ok(&format!("apply -f {}", example.display()));
    kubectl.rolled_out("nginx");
    let ip = kubectl.ok("get service nginx -o jsonpath={.spec.clusterIP}");
    let _etcd = start_etcd(&cluster);

    let engine = format!("etcd={ETCD}");
    moves(&mut cluster, &ip, "sqlite", &engine);
    let check = cluster.site.command("server", binary("coracle"));
    let check = succeed({ check }.args(["check", "--store", &engine]));
    eprintln!("coracle check --store {engine}:\n{check}");
    works(&kubectl, 4);

    // A copy goes where nothing is; the old file is the user's to keep.
    let file = server_data(&cluster).join("server/store.db");
    std::fs::rename(&file, file.with_extension("db.before-etcd")).expect("move the old store");
    moves(&mut cluster, &ip, &engine, "sqlite");
    works(&kubectl, 2);
}

/// Stops the server, copies, and starts it on the other engine. Pods notice nothing.
fn moves(cluster: &mut Cluster, ip: &str, from: &str, to: &str) {
    let kubectl = cluster.kubectl();
    let before = (identities(&kubectl), nginx_pids(cluster));
    let kept = kubectl.ok(KEPT);
    let revision = revision(&kubectl);
    cluster.server.take().expect("the server runs").stop();

    let mut copy = cluster.site.command("server", binary("coracle"));
    copy.args(["store", "copy", "--from", from, "--to", to, "--data-dir"]);
    let said = succeed(copy.arg(server_data(cluster)));
    eprintln!("coracle store copy --from {from} --to {to}:\n{said}");
    assert!(said.contains("found no difference"), "{said}");
    let page = cluster.site.fetch("n1", &format!("http://{ip}/"));
    assert!(page.is_ok(), "the Service works meanwhile: {page:?}");

    cluster.store = Some(to.to_owned());
    cluster.start_server();
    cluster.wait_ready(1);
    assert_eq!((identities(&kubectl), nginx_pids(cluster)), before);
    assert_eq!(kubectl.ok(KEPT), kept, "after the move to {to}");
    let now = self::revision(&kubectl);
    assert!(now > revision, "{now} after {revision}");
}

/// What clients write is carried out, and by the node, too.
fn works(kubectl: &Kubectl, replicas: usize) {
    kubectl.ok(&format!("scale deployment nginx --replicas {replicas}"));
    kubectl.rolled_out("nginx");
    kubectl.count_is("pods -l app=nginx", replicas);
}

fn revision(kubectl: &Kubectl) -> u64 {
    let list = kubectl.ok("get --raw /api/v1/pods?limit=1");
    let list: serde_json::Value = serde_json::from_str(&list).expect("a list");
    let revision = list["metadata"]["resourceVersion"].as_str();
    revision
        .expect("a list has one")
        .parse()
        .expect("it is a number")
}

fn start_etcd(cluster: &Cluster) -> Process {
    let mut etcd: Command = cluster.site.command("server", tool("etcd"));
    etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
    etcd.arg("--data-dir").arg(cluster.site.subdir("etcd-data"));
    let flags = ["--listen-client-urls", "--advertise-client-urls"];
    etcd.args(flags.iter().flat_map(|flag| [*flag, ETCD]));
    let mut etcd = Process::start(etcd, &cluster.site.dir().join("etcd.log"));
    wait::until("etcd answers", START_DEADLINE, || {
        assert!(etcd.ended().is_none(), "{}", etcd.output());
        cluster.site.fetch("server", &format!("{ETCD}/health"))
    });
    etcd
}

fn server_data(cluster: &Cluster) -> PathBuf {
    cluster.site.subdir("server-data")
}
