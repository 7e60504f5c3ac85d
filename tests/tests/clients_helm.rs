//! helm 4 and 3: the sessions in `tests/clients/helm`, played on a cluster of the real binaries
//! with charts that have hooks, tests, dependencies, and what they keep. The table goes to
//! `target/clients/helm.md`.

use coracle_tests::{
    binary,
    cluster::Cluster,
    is_root_or_skip,
    matrix::{self, Row},
    session, workspace,
};

const VERSIONS: [&str; 2] = ["4.1", "3.17"];
const SESSIONS: [&str; 4] = ["helm", "charts", "operator", "guard"];

#[test]
fn every_helm_passes_its_sessions() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let rows = std::thread::scope(|scope| {
        let players: Vec<_> = SESSIONS
            .iter()
            .flat_map(|session| VERSIONS.map(|version| (*session, version)))
            .map(|(session, version)| {
                let cluster = &cluster;
                scope.spawn(move || play(cluster, session, version))
            })
            .collect();
        players
            .into_iter()
            .flat_map(|player| player.join().expect("a session does not panic"))
            .collect::<Vec<_>>()
    });
    matrix::publish("helm", &rows);
}

fn play(cluster: &Cluster, session: &str, version: &str) -> Vec<Row> {
    let name = format!("{session}-{}", version.replace('.', ""));
    let helm = format!("helm-{version}");
    let clients = [("helm", &*helm), ("kubectl", "kubectl")];
    let mut stage = cluster.stage(&name, &format!("helm {version}"), version, &clients);
    let dir = workspace().join("tests/clients/helm");
    let charts = dir.join("charts").to_string_lossy().into_owned();
    stage.environment.push(("CHARTS".to_owned(), charts));
    // Of what charts have pods run that have no image.
    let program = binary("webhook");
    let program = program.parent().expect("a folder").to_string_lossy();
    let program = ("PROGRAM".to_owned(), program.into_owned());
    stage.environment.push(program);
    session::play(&dir.join(format!("{session}.session")), &stage)
}
