//! A kind of the program's own, derived from a type: its definition, typed objects of it, and a
//! controller that makes a ConfigMap of each.

use std::{pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt as _, KubeSchema, Resource as _, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{
        Controller,
        controller::Action,
        finalizer::{self, Event, finalizer},
        wait::{await_condition, conditions},
        watcher,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{PATIENCE, api, config_map, data, until};

const FINALIZER: &str = "kube.tests.example.org/pages";
/// Who applies.
const MANAGER: &str = "pages";

#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "kube.tests.example.org",
    version = "v1",
    kind = "Page",
    namespaced,
    status = "PageStatus",
    shortname = "pg",
    category = "tests",
    scale(
        spec_replicas_path = ".spec.copies",
        status_replicas_path = ".status.copies"
    ),
    printcolumn(name = "Title", type_ = "string", json_path = ".spec.title"),
    selectable = ".spec.title",
    validation = Rule::new("self.metadata.name != 'forbidden'").message("not this name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.author) || self.author == oldSelf.author").message("the author stays"))]
struct PageSpec {
    #[x_kube(validation = Rule::new("self != ''").message("a title says something"))]
    title: String,
    author: Option<String>,
    #[serde(default = "one")]
    copies: i32,
    /// Lines by their number.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["number".into()]))]
    #[serde(default)]
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, schemars::JsonSchema)]
struct Line {
    number: i32,
    text: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PageStatus {
    #[serde(default)]
    copies: i32,
    observed_generation: Option<i64>,
}

fn one() -> i32 {
    1
}

fn page(name: &str, title: &str) -> Page {
    let spec = PageSpec {
        title: title.to_owned(),
        author: Some("alice".to_owned()),
        copies: 1,
        lines: Vec::new(),
    };
    Page::new(name, spec)
}

/// Applies the definition and waits until its kind is served.
async fn define(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = Page::crd_name();
    let params = PatchParams::apply(MANAGER).force();
    definitions
        .patch(name, &params, &Patch::Apply(Page::crd()))
        .await
        .context("the derived definition")?;
    let established = await_condition(definitions, name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established)
        .await
        .context("it is not established")??;
    let pages: Api<Page> = api(client);
    until("the kind to be served", || async {
        Ok(pages.list(&ListParams::default()).await.is_ok())
    })
    .await
}

/// What a server says against an object.
fn refusal<T>(result: kube::Result<T>) -> String {
    match result {
        Err(kube::Error::Api(status)) => status.message.clone(),
        _ => String::new(),
    }
}

pub(crate) async fn objects(client: Client) -> Result<()> {
    define(&client).await?;
    let pages: Api<Page> = api(&client);
    let params = PostParams::default();
    for (wrong, why) in [
        (
            page("untitled", ""),
            "spec.title: Invalid value: \"\": a title says something",
        ),
        (page("forbidden", "t"), "not this name"),
    ] {
        let said = refusal(pages.create(&params, &wrong).await);
        ensure!(said.contains(why), "{said}");
    }
    let made = pages.create(&params, &page("typed", "first")).await?;
    let start = made.resource_version().context("a version")?;
    ensure!(
        made.spec.copies == 1 && made.meta().generation == Some(1),
        "{made:?}"
    );
    let other = Patch::Merge(json!({"spec": {"author": "bob"}}));
    let said = refusal(pages.patch("typed", &PatchParams::default(), &other).await);
    ensure!(said.contains("the author stays"), "{said}");

    // Owners of lines, by their number.
    for (manager, number) in [("one", 1), ("two", 2)] {
        let line = json!({"apiVersion": Page::api_version(&()), "kind": "Page", "metadata": {"name": "typed"},
            "spec": {"title": "first", "lines": [{"number": number, "text": manager}]}});
        let params = PatchParams::apply(manager).force();
        pages.patch("typed", &params, &Patch::Apply(line)).await?;
    }
    let now = pages.get("typed").await?;
    ensure!(
        now.spec.lines.len() == 2 && now.meta().generation == Some(3),
        "{now:?}"
    );

    let status = json!({"status": {"copies": 1, "observedGeneration": 3}, "spec": {"title": "not by this way"}});
    let params = PatchParams::default();
    let told = pages
        .patch_status("typed", &params, &Patch::Merge(status))
        .await?;
    ensure!(told.spec.title == "first", "{told:?}");
    ensure!(told.status.and_then(|status| status.observed_generation) == Some(3));
    let scale = Patch::Merge(json!({"spec": {"replicas": 4}}));
    let scaled = pages.patch_scale("typed", &params, &scale).await?;
    ensure!(scaled.status.map(|status| status.replicas) == Some(1));
    ensure!(pages.get("typed").await?.spec.copies == 4);

    let titled = ListParams::default().fields("spec.title=first");
    ensure!(pages.list(&titled).await?.items.len() == 1);
    let titled = ListParams::default().fields("spec.title=other");
    ensure!(pages.list(&titled).await?.items.is_empty());
    pages.delete("typed", &DeleteParams::default()).await?;
    let params = WatchParams::default().timeout(20);
    let mut events = pages.watch(&params, &start).await?.boxed();
    let mut changes = 0;
    loop {
        match events.try_next().await?.context("it ended")? {
            WatchEvent::Modified(_) => changes += 1,
            WatchEvent::Deleted(gone) => break ensure!(gone.spec.copies == 4, "{gone:?}"),
            _ => {}
        }
    }
    ensure!(changes == 4, "{changes} changes");
    Ok(())
}

/// What a reconciliation fails with.
#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

fn failed(error: impl std::fmt::Display) -> Failed {
    Failed(error.to_string())
}

type FinalizerError = finalizer::Error<Failed>;

async fn reconcile(page: Arc<Page>, client: Arc<Client>) -> Result<Action, FinalizerError> {
    let pages: Api<Page> = api(&client);
    let apply = |event| async {
        match event {
            Event::Apply(page) => apply(&page, &client).await,
            Event::Cleanup(page) => note_the_end(&page, &client).await,
        }
        .map_err(failed)
    };
    finalizer(&pages, FINALIZER, page, apply).await
}

/// A ConfigMap that belongs to the page, and what was seen of the page.
async fn apply(page: &Page, client: &Client) -> kube::Result<Action> {
    let (maps, pages): (Api<ConfigMap>, Api<Page>) = (api(client), api(client));
    let name = page.name_any();
    let owner = page.controller_owner_ref(&());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
        "data": {"title": page.spec.title}});
    let params = PatchParams::apply(MANAGER).force();
    maps.patch(&name, &params, &Patch::Apply(map)).await?;
    let status = json!({"apiVersion": Page::api_version(&()), "kind": "Page", "metadata": {"name": name},
        "status": {"copies": page.spec.copies, "observedGeneration": page.meta().generation}});
    pages
        .patch_status(&name, &params, &Patch::Apply(status))
        .await?;
    Ok(Action::await_change())
}

async fn note_the_end(page: &Page, client: &Client) -> kube::Result<Action> {
    let maps: Api<ConfigMap> = api(client);
    let name = format!("{}-ended", page.name_any());
    let map = config_map(&name, json!({"title": page.spec.title}));
    let params = PatchParams::apply(MANAGER);
    maps.patch(&name, &params, &Patch::Apply(map)).await?;
    Ok(Action::await_change())
}

pub(crate) async fn control(client: Client) -> Result<()> {
    define(&client).await?;
    let (pages, maps): (Api<Page>, Api<ConfigMap>) = (api(&client), api(&client));
    let (stop, stopped) = oneshot::channel::<()>();
    let on_error =
        |_: Arc<Page>, _: &FinalizerError, _| Action::requeue(Duration::from_millis(100));
    let controller = Controller::new(pages, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .graceful_shutdown_on(stopped.map(drop))
        .run(reconcile, on_error, Arc::new(client.clone()))
        .for_each(|_| std::future::ready(()));
    let checks = async {
        let checked = look(&client).await;
        drop(stop);
        checked
    };
    let (checked, ()) = tokio::join!(checks, controller);
    checked
}

/// Changes pages and waits for what their controller makes of it.
async fn look(client: &Client) -> Result<()> {
    let (pages, maps): (Api<Page>, Api<ConfigMap>) = (api(client), api(client));
    let title = async |name: &str| -> Result<Value> {
        let map = maps.get_opt(name).await?;
        Ok(map.map_or(Value::Null, |map| data(&map)["title"].clone()))
    };
    let made = pages
        .create(&PostParams::default(), &page("kept", "first"))
        .await?;
    until("its ConfigMap", || async {
        Ok(title("kept").await? == "first")
    })
    .await?;
    let owners = maps.get("kept").await?.metadata.owner_references;
    let owner = owners.into_iter().flatten().next().context("an owner")?;
    ensure!(
        owner.kind == "Page" && Some(&owner.uid) == made.meta().uid.as_ref(),
        "{owner:?}"
    );
    let change = Patch::Merge(json!({"spec": {"title": "second"}}));
    let params = PatchParams::default();
    let changed = pages.patch("kept", &params, &change).await?;
    until("its new title", || async {
        Ok(title("kept").await? == "second")
    })
    .await?;
    until("what was seen", || async {
        let status = pages.get_status("kept").await?.status.unwrap_or_default();
        Ok(status.observed_generation == changed.meta().generation)
    })
    .await?;
    // Drift is put right, also when the whole of it goes.
    let drift = Patch::Merge(json!({"data": {"title": "drifted"}}));
    maps.patch("kept", &params, &drift).await?;
    until("the title again", || async {
        Ok(title("kept").await? == "second")
    })
    .await?;
    maps.delete("kept", &DeleteParams::default()).await?;
    until("the ConfigMap again", || async {
        Ok(title("kept").await? == "second")
    })
    .await?;

    pages.delete("kept", &DeleteParams::default()).await?;
    let uid = made.uid().unwrap_or_default();
    let gone = pin!(await_condition(pages, "kept", conditions::is_deleted(&uid)));
    tokio::time::timeout(PATIENCE, gone)
        .await
        .context("the page does not go")??;
    ensure!(title("kept-ended").await? == "second", "no clean-up");
    until("the collector", || async {
        Ok(title("kept").await?.is_null())
    })
    .await
}
