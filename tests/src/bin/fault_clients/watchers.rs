//! Watches of every kind that the checks look at, on every server: each goes on from the last
//! version that it saw, for as long as the server lets it.

use std::time::Duration;

use coracle_tests::faults::history::{
    Change, Facts, LeaseFacts, Listed, Object, Reached, Record, Seen,
};
use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Node, Pod, Service},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Error, Resource,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::{
    Phase,
    recorder::Recorder,
    server::{Answer, Link},
};

/// What is watched.
pub(crate) const KINDS: [fn() -> ApiResource; 5] = [
    of::<ConfigMap>,
    of::<Lease>,
    of::<Node>,
    of::<Pod>,
    of::<Service>,
];
/// How long a watch lasts: so it is begun anew all the time.
const LASTS_SECS: u32 = 15;
/// Then the line is cut.
const PATIENCE: Duration = Duration::from_secs(17);
/// Before the next try.
const PAUSE: Duration = Duration::from_millis(200);
/// What is on its way when all is listed at the end has that much time.
const LAST: Duration = Duration::from_secs(5);

fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// Follows one kind on one server.
pub(crate) async fn watch(
    link: Link,
    kind: fn() -> ApiResource,
    recorder: &Recorder,
    mut phase: watch::Receiver<Phase>,
) {
    let resource = kind();
    let mut watcher = Watcher {
        kind: resource.kind.clone(),
        resource,
        link,
        recorder,
        at: None,
    };
    tokio::select! {
        () = watcher.follow() => {}
        _ = phase.wait_for(|phase| *phase == Phase::End) => {}
    }
    watcher.compare().await;
    // What it had begun to read when it was told to end is read again from where it was.
    let _over = tokio::time::timeout(LAST, watcher.follow()).await;
}

struct Watcher<'a> {
    resource: ApiResource,
    kind: String,
    link: Link,
    recorder: &'a Recorder,
    /// The last version that was seen.
    at: Option<u64>,
}

impl Watcher<'_> {
    fn api(&self) -> Api<DynamicObject> {
        Api::all_with(self.link.client.clone(), &self.resource)
    }

    async fn follow(&mut self) {
        loop {
            if self.at.is_none() {
                self.begin().await;
            }
            if let Some(at) = self.at {
                self.go_on(at).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn list(&mut self) -> Option<Listed> {
        let (api, params) = (self.api(), ListParams::default());
        let list = match self.link.answer(api.list(&params)).await {
            Answer::Done(list) => list,
            Answer::Odd(what) => {
                self.recorder.odd(what);
                return None;
            }
            _ => return None,
        };
        let version = list.metadata.resource_version.as_deref()?.parse().ok()?;
        Some(Listed {
            server: self.link.server,
            kind: self.kind.clone(),
            version,
            objects: list
                .items
                .iter()
                .filter_map(|object| self.object(object))
                .collect(),
        })
    }

    async fn begin(&mut self) {
        if let Some(list) = self.list().await {
            self.at = Some(list.version);
            self.recorder.keep(&Record::Listed(list));
        }
    }

    /// At the end, when nothing fails any more.
    async fn compare(&mut self) {
        for _ in 0..10 {
            if let Some(list) = self.list().await {
                self.recorder.keep(&Record::Compared(list));
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let Self { kind, link, .. } = self;
        self.recorder.odd(format!(
            "server {} does not list {kind} at the end",
            link.server
        ));
    }

    /// One watch, to its end.
    async fn go_on(&mut self, from: u64) {
        let params = WatchParams::default().timeout(LASTS_SECS);
        let deadline = Instant::now() + PATIENCE;
        let (api, from) = (self.api(), from.to_string());
        let opened = tokio::time::timeout_at(deadline, api.watch(&params, &from)).await;
        let mut events: BoxStream<'_, _> = match opened {
            Ok(Ok(events)) => events.boxed(),
            Ok(Err(error)) => return self.failed(&error),
            Err(_) => return self.link.renew(),
        };
        loop {
            match tokio::time::timeout_at(deadline, events.next()).await {
                Ok(Some(Ok(event))) => {
                    if !self.take(event) {
                        return;
                    }
                }
                Ok(Some(Err(error))) => return self.failed(&error),
                Ok(None) => return,
                Err(_) => return self.link.renew(),
            }
        }
    }

    fn failed(&mut self, error: &Error) {
        match error {
            Error::Api(status) if status.code == 410 => self.gone(),
            Error::Api(status) if !matches!(status.code, 429 | 503 | 504) => {
                self.recorder
                    .odd(format!("server {}: {status:?}", self.link.server));
            }
            _ => self.link.renew(),
        }
    }

    fn gone(&mut self) {
        let reached = self.reached(self.at.unwrap_or_default());
        self.recorder.keep(&Record::Gone(reached));
        self.at = None;
    }

    fn reached(&self, version: u64) -> Reached {
        Reached {
            server: self.link.server,
            kind: self.kind.clone(),
            version,
            at: self.recorder.now(),
        }
    }

    /// Whether the watch goes on after an event.
    fn take(&mut self, event: WatchEvent<DynamicObject>) -> bool {
        let (change, object) = match event {
            WatchEvent::Added(object) => (Change::Added, object),
            WatchEvent::Modified(object) => (Change::Modified, object),
            WatchEvent::Deleted(object) => (Change::Deleted, object),
            WatchEvent::Bookmark(bookmark) => {
                if let Ok(version) = bookmark.metadata.resource_version.parse() {
                    self.at = Some(version);
                    self.recorder.keep(&Record::Reached(self.reached(version)));
                }
                return true;
            }
            WatchEvent::Error(status) => {
                self.failed(&Error::Api(status));
                return false;
            }
        };
        let Some(object) = self.object(&object) else {
            self.recorder.odd(format!(
                "server {}: an event without a version",
                self.link.server
            ));
            return true;
        };
        self.at = Some(object.version);
        self.recorder.keep(&Record::Seen(Seen {
            server: self.link.server,
            kind: self.kind.clone(),
            change,
            object,
        }));
        true
    }

    fn object(&self, object: &DynamicObject) -> Option<Object> {
        let metadata = &object.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        Some(Object {
            name: format!("{namespace}/{}", metadata.name.as_deref()?),
            uid: metadata.uid.clone()?,
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            facts: match &*self.kind {
                "ConfigMap" => register(&object.data["data"]),
                "Lease" => lease(&object.data["spec"]),
                "Node" => node(&object.data["status"]),
                "Service" => service(&object.data["spec"]),
                _ => pod(object),
            },
        })
    }
}

fn register(data: &Value) -> Facts {
    let text = |key: &str| data[key].as_str();
    match (
        text("key"),
        text("value").and_then(|value| value.parse().ok()),
    ) {
        (Some(key), Some(value)) => Facts::Register {
            key: key.to_owned(),
            value,
        },
        _ => Facts::None,
    }
}

fn lease(spec: &Value) -> Facts {
    let time = |key: &str| {
        let time = spec[key]
            .as_str()
            .and_then(|time| time.parse::<Timestamp>().ok());
        time.map_or(0, |time| {
            u64::try_from(time.as_microsecond()).unwrap_or_default()
        })
    };
    Facts::Lease(LeaseFacts {
        holder: spec["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        renewed: time("renewTime"),
        acquired: time("acquireTime"),
        seconds: spec["leaseDurationSeconds"].as_u64().unwrap_or_default(),
        transitions: spec["leaseTransitions"].as_i64().unwrap_or_default(),
    })
}

fn service(spec: &Value) -> Facts {
    let address = spec["clusterIP"]
        .as_str()
        .filter(|address| *address != "None");
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.filter_map(|port| port["nodePort"].as_u64());
    Facts::Service(
        address
            .map(str::to_owned)
            .into_iter()
            .chain(ports.map(|port| port.to_string()))
            .collect(),
    )
}

fn pod(object: &DynamicObject) -> Facts {
    let owners = object.metadata.owner_references.iter().flatten();
    let owner = owners
        .filter(|owner| owner.controller == Some(true))
        .map(|owner| &owner.uid)
        .next();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let statuses = object.data["status"]["containerStatuses"].as_array();
    let statuses = statuses.into_iter().flatten();
    let ids = statuses.clone().map(|status| text(&status["containerID"]));
    let restarts = statuses.map(|status| status["restartCount"].as_u64().unwrap_or_default());
    Facts::Pod {
        owner: owner.cloned().unwrap_or_default(),
        is_going: object.metadata.deletion_timestamp.is_some(),
        node: text(&object.data["spec"]["nodeName"]),
        containers: ids.filter(|id| !id.is_empty()).collect(),
        restarts: restarts.sum(),
    }
}

fn node(status: &Value) -> Facts {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.filter(|condition| condition["type"] == "Ready");
    let ready = ready.filter_map(|condition| condition["status"].as_str());
    Facts::Node {
        ready: ready.map(str::to_owned).collect(),
    }
}
