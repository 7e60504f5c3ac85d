//! The real kubectl on a kind that came at run time.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::Arc,
};

use serde_json::json;

use super::{
    super::kubectl::{Kubectl, ok, words},
    serving, widgets_of_two_versions, within,
};
use crate::{custom_resources, testing};

fn manifest(size: u32, more: &str) -> String {
    format!(
        "apiVersion: example.org/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: {size}\n{more}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_uses_a_kind_that_came_at_run_time() {
    let (server, _admin) = serving(widgets_of_two_versions(json!({}))).await;
    let listening = testing::listen(Arc::clone(&server)).await;
    let Some(kubectl) = Kubectl::of(&listening).map(Arc::new) else {
        return;
    };
    const NAME: &str = "widget.example.org/a";

    kubectl.write("a.yaml", &manifest(1, ""));
    assert_eq!(
        ok(&kubectl, "create -f a.yaml").await,
        format!("{NAME} created\n")
    );
    // Of two versions kubectl takes the one that the server prefers.
    for (line, heads, row) in [
        ("get wd", ["NAME", "MODE", "AGE"], ["a", "fast"]),
        (
            "get widgets.v1.example.org",
            ["NAME", "SIZE", "AGE"],
            ["a", "1"],
        ),
    ] {
        let table = ok(&kubectl, line).await;
        let (first, second) = words(&table);
        assert_eq!((first, &second[..2]), (heads.to_vec(), &row[..]), "{table}");
    }
    apply_while_watching(&kubectl).await;
    assert_eq!(
        ok(&kubectl, "apply -f a.yaml").await,
        format!("{NAME} unchanged\n")
    );
    assert_eq!(
        ok(&kubectl, "apply --server-side --force-conflicts -f a.yaml").await,
        format!("{NAME} serverside-applied\n")
    );
    assert_eq!(
        ok(&kubectl, "get widget a -o jsonpath={.apiVersion}{.spec}").await,
        r#"example.org/v2{"mode":"slow","size":2}"#
    );
    for (line, expect) in [
        ("explain widgets.spec.size", "Its size in this version."),
        (
            "explain --api-version=example.org/v1 widgets.spec.size",
            "How large it is.",
        ),
    ] {
        let text = ok(&kubectl, line).await;
        assert!(text.contains(expect), "{line}: {text}");
    }
    let kind = widgets_of_two_versions(json!({"colour": {"type": "string"}}));
    custom_resources::serve(&server.state, kind).await.unwrap();
    kubectl.write("a.yaml", &manifest(2, "  mode: slow\n  colour: red\n"));
    assert_eq!(
        ok(&kubectl, "apply -f a.yaml").await,
        format!("{NAME} configured\n")
    );
    let explained = "explain --api-version=example.org/v1 widgets.spec";
    assert!(ok(&kubectl, explained).await.contains("colour"));
    assert_eq!(
        ok(&kubectl, "delete widget a").await,
        "widget.example.org \"a\" deleted from default namespace\n"
    );
    custom_resources::withdraw(&server.state, "example.org", "widgets").await;
    let gone = kubectl.run("get widgets").await.unwrap_err();
    assert!(gone.contains("the server"), "{gone}");
}

/// A watch of the version that is preferred sees what is applied in the other.
async fn apply_while_watching(kubectl: &Arc<Kubectl>) {
    let mut watching = kubectl
        .command("get widgets -w -o name")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let (send, mut watched) = tokio::sync::mpsc::unbounded_channel();
    let forward = tokio::task::spawn_blocking(move || {
        lines.for_each(|line| send.send(line).unwrap_or_default())
    });
    let name = "widget.example.org/a";
    assert_eq!(within(watched.recv()).await.unwrap(), name);
    kubectl.write("a.yaml", &manifest(2, "  mode: slow\n"));
    assert_eq!(
        ok(kubectl, "apply -f a.yaml").await,
        format!("{name} configured\n")
    );
    assert_eq!(within(watched.recv()).await.unwrap(), name);
    watching.kill().unwrap();
    watching.wait().unwrap();
    forward.await.unwrap();
}
