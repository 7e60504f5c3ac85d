//! helm 4 and 3: the session in `tests/clients/helm`, played on a cluster of the real binaries with
//! a chart that has hooks, a test and a dependency. The table goes to `target/clients/helm.md`.

use coracle_tests::{cluster::Cluster, is_root_or_skip, matrix, session, workspace};

#[test]
fn every_helm_passes_its_session() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let dir = workspace().join("tests/clients/helm");
    let rows = std::thread::scope(|scope| {
        let players: Vec<_> = ["4.1", "3.17"]
            .map(|version| {
                let (cluster, dir) = (&cluster, &dir);
                scope.spawn(move || {
                    let name = format!("helm-{}", version.replace('.', ""));
                    let clients = [
                        ("helm", format!("helm-{version}")),
                        ("kubectl", "kubectl".to_owned()),
                    ];
                    let clients = clients
                        .each_ref()
                        .map(|(called, tool)| (*called, tool.as_str()));
                    let mut stage =
                        cluster.stage(&name, &format!("helm {version}"), version, &clients);
                    let charts = dir.join("charts").to_string_lossy().into_owned();
                    stage.environment.push(("CHARTS".to_owned(), charts));
                    session::play(&dir.join("helm.session"), &stage)
                })
            })
            .into();
        players
            .into_iter()
            .flat_map(|player| player.join().expect("a session does not panic"))
            .collect::<Vec<_>>()
    });
    matrix::publish("helm", &rows);
}
