//! Where pods of a StatefulSet come, go and change, from states of pods and claims: upstream's own
//! cases over a world in which what is planned happens at once.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};

use super::{
    plan::{Action, Claims, plan},
    view::{Version, Versions},
    *,
};

mod claims;
mod identities;
mod order;
mod revisions;
mod rollouts;
mod walks;

const NOW: i64 = 1_000_000;

/// A set, its pods and its claims, and two templates.
struct World {
    set: Value,
    pods: Vec<Value>,
    claims: Vec<Value>,
    /// What the status would name.
    current: &'static str,
    update: &'static str,
    made: u32,
}

/// `spec` is merged into that of a set of three pods without claims.
fn world(spec: Value) -> World {
    let mut set = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "me", "generation": 2},
        "spec": {
            "replicas": 3, "serviceName": "webs", "podManagementPolicy": "OrderedReady",
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        set["spec"][field] = value.clone();
    }
    World {
        set,
        pods: Vec::new(),
        claims: Vec::new(),
        current: "new",
        update: "new",
        made: 0,
    }
}

fn parallel(mut spec: Value) -> World {
    spec["podManagementPolicy"] = "Parallel".into();
    world(spec)
}

fn rolling(partition: i32, max_unavailable: Value) -> Value {
    let rolling = json!({"partition": partition, "maxUnavailable": max_unavailable});
    json!({"type": "RollingUpdate", "rollingUpdate": rolling})
}

impl World {
    fn set(&self) -> StatefulSet {
        serde_json::from_value(self.set.clone()).unwrap()
    }

    /// Puts a pod there that is ready since long, of that template.
    fn has(mut self, name: &str, revision: &str) -> Self {
        self.made += 1;
        self.pods.push(json!({
            "metadata": {"name": name, "namespace": "n", "uid": format!("{name}:{}", self.made), "labels": {
                "app": "web", "controller-revision-hash": revision, "statefulset.kubernetes.io/pod-name": name}},
            "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-12T13:46:30Z"}]},
        }));
        self
    }

    fn pod(&mut self, name: &str) -> &mut Value {
        let mut pods = self.pods.iter_mut();
        pods.find(|pod| pod["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
    }

    fn becomes_ready(&mut self, name: &str) {
        self.pod(name)["status"] = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-12T13:46:30Z"}]});
    }

    fn fails(&mut self, name: &str) {
        self.pod(name)["status"] = json!({"phase": "Failed"});
    }

    fn becomes_unready(&mut self, name: &str) {
        self.pod(name)["status"]["conditions"][0]["status"] = "False".into();
    }

    fn begins_to_go(&mut self, name: &str) {
        self.pod(name)["metadata"]["deletionTimestamp"] = "1970-01-12T13:46:40Z".into();
    }

    fn is_gone(&mut self, name: &str) {
        self.pod(name);
        self.pods.retain(|pod| pod["metadata"]["name"] != name);
    }

    fn held(&self) -> Vec<Arc<Pod>> {
        let held = |pod: &Value| Arc::new(serde_json::from_value(pod.clone()).unwrap());
        self.pods.iter().map(held).collect()
    }

    fn look<T>(&self, ask: impl FnOnce(&View<'_>) -> T) -> T {
        let (set, pods) = (self.set(), self.held());
        let old: PodTemplateSpec = serde_json::from_value(
            json!({"spec": {"containers": [{"name": "c", "image": "old"}]}}),
        )
        .unwrap();
        let versions = Versions {
            current: Version {
                name: self.current,
                template: &old,
            },
            update: Version {
                name: self.update,
                template: &set.spec.template,
            },
        };
        let claim = |name: &str| {
            let mut claims = self.claims.iter();
            let found = claims.find(|claim| claim["metadata"]["name"] == name)?;
            Some(Arc::new(serde_json::from_value(found.clone()).unwrap()))
        };
        let now = Timestamp::from_second(NOW).unwrap();
        ask(&View::new((&set, versions), &pods, &claim, now))
    }

    fn status(&self) -> Value {
        json!(self.look(super::status::status))
    }

    /// What is planned, as text.
    fn planned(&self) -> String {
        let plan = self.look(plan);
        let actions: Vec<_> = plan.steps.iter().flatten().map(told).collect();
        actions.join(", ")
    }

    /// What is planned, and it happens: what is deleted begins to go.
    fn round(&mut self) -> String {
        let (text, plan) = (self.planned(), self.look(plan));
        for action in plan.steps.into_iter().flatten() {
            self.happens(action);
        }
        text
    }

    fn happens(&mut self, action: Action) {
        match action {
            Action::Create { pod, claims } => {
                let mut pod = json!(pod);
                let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(
                    self.pods.iter().all(|one| one["metadata"]["name"] != *name),
                    "{name} twice"
                );
                self.made += 1;
                pod["metadata"]["uid"] = format!("{name}:{}", self.made).into();
                pod["status"] = json!({"phase": "Pending"});
                self.pods.push(pod);
                self.care_for(claims);
            }
            Action::Delete(pod) => self.begins_to_go(pod.metadata.name.as_deref().unwrap()),
            Action::Claims { claims, .. } => self.care_for(claims),
            Action::Update {
                pod,
                ordinal,
                claims,
                ..
            } => {
                let set = self.set();
                let mut live =
                    serde_json::from_value(self.pod(pod.metadata.name.as_deref().unwrap()).take())
                        .unwrap();
                identity::conform(&set, &mut live, ordinal);
                self.pods.retain(|pod| !pod.is_null());
                self.pods.push(json!(live));
                self.care_for(claims);
            }
        }
    }

    fn care_for(&mut self, claims: Claims) {
        self.claims
            .extend(claims.create.iter().map(|claim| json!(claim)));
        for new in claims.give {
            let name = new.claim.metadata.name.as_deref().unwrap();
            let mut claims = self.claims.iter_mut();
            let claim = claims.find(|claim| claim["metadata"]["name"] == name);
            claim.unwrap()["metadata"]["ownerReferences"] = json!(new.owners);
        }
    }
}

fn told(action: &Action) -> String {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    match action {
        Action::Create { pod, claims } => {
            let labels = pod.metadata.labels.as_ref().unwrap();
            let (name, revision) = (
                pod.metadata.name.as_deref().unwrap(),
                &labels["controller-revision-hash"],
            );
            let of = if revision == "old" { " of old" } else { "" };
            format!("create {name}{of}{}", told_of(claims))
        }
        Action::Delete(pod) => format!("delete {}", name(pod)),
        Action::Claims { pod, claims } => format!("claims of {}{}", name(pod), told_of(claims)),
        Action::Update {
            pod,
            claims,
            is_changed,
            ..
        } => {
            let what = if *is_changed { "" } else { "'s claims" };
            format!("update {}{what}{}", name(pod), told_of(claims))
        }
    }
}

fn told_of(claims: &Claims) -> String {
    let names = |claims: &[PersistentVolumeClaim]| -> Vec<_> {
        claims
            .iter()
            .map(|claim| claim.metadata.name.clone().unwrap())
            .collect()
    };
    let mut text = String::new();
    for name in names(&claims.create) {
        text += &format!(" +{name}");
    }
    for name in &claims.going {
        text += &format!(" waits for the end of {name}");
    }
    for name in &claims.contested {
        text += &format!(" somebody else's {name}");
    }
    for new in &claims.give {
        let kinds: Vec<_> = new.owners.iter().map(|owner| &*owner.kind).collect();
        let name = new.claim.metadata.name.as_deref().unwrap();
        text += &format!(" {name} to [{}]", kinds.join(" "));
    }
    text
}
