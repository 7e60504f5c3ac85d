//! kubectl, new and old: what users type, played on a cluster of the real binaries. The sessions
//! lie in `tests/clients/kubectl`, the table goes to `target/clients/kubectl.md`.

use std::{path::PathBuf, sync::Mutex};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip, matrix,
    session::{self, Stage},
    workspace,
};

/// Newest first.
const VERSIONS: [&str; 3] = ["1.37", "1.35", "1.29"];

/// Sessions played at once: they wait more than they work.
const PLAYERS: usize = 4;

/// All versions share one cluster, each session has a namespace of its own.
#[test]
fn every_kubectl_passes_its_sessions() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let mut sessions = sessions("kubectl");
    if let Some(only) = std::env::var_os("CORACLE_SESSION") {
        sessions.retain(|file| file.file_stem() == Some(&only));
    }
    let mut work: Vec<(&str, PathBuf)> = Vec::new();
    for file in sessions {
        work.extend(VERSIONS.map(|version| (version, file.clone())));
    }
    work.reverse();
    let work = Mutex::new(work);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some((version, file)) = take(&work) {
                    let played = session::play(&file, &stage(&cluster, version, &file));
                    rows.lock()
                        .expect("nobody panics with it")
                        .push((file, played));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("nobody panics with it");
    rows.sort_by_key(|(file, played)| {
        let client = played
            .first()
            .map(|row| row.client.clone())
            .unwrap_or_default();
        (file.clone(), std::cmp::Reverse(client))
    });
    matrix::publish(
        "kubectl",
        &rows
            .into_iter()
            .flat_map(|(_, played)| played)
            .collect::<Vec<_>>(),
    );
}

fn take<T>(work: &Mutex<Vec<T>>) -> Option<T> {
    work.lock().expect("nobody panics with it").pop()
}

fn sessions(client: &str) -> Vec<PathBuf> {
    let dir = workspace().join("tests/clients").join(client);
    let entries =
        std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "session")
    });
    files.sort();
    files
}

/// A directory, a namespace and a kubeconfig for one session of one version.
fn stage(cluster: &Cluster, version: &str, file: &std::path::Path) -> Stage {
    let name = format!(
        "v{}-{}",
        version.replace('.', ""),
        file.file_stem().expect("a name").to_string_lossy()
    );
    let tool = if version == VERSIONS[0] {
        "kubectl".to_owned()
    } else {
        format!("kubectl-{version}")
    };
    cluster.stage(
        &name,
        &format!("kubectl {version}"),
        version,
        &[("kubectl", &tool)],
    )
}
