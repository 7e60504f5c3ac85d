//! Where the time of one pod start goes: what the server and the agent tell of their spans, beside
//! what a client sees.
//!
//! A cluster that tells of them is a little slower, so this one is started for the purpose and all
//! other figures are taken without.

use std::time::Duration;

use coracle_tests::{
    process::Process,
    spans::{self, Span},
};
use serde_json::Value;

use crate::{cluster::Bench, report::percentile};

/// What happens to each pod, in the order of their beginnings: the span, the request that it is or
/// is directly within, and how it is told.
const STAGES: [(&str, Option<&str>, &str); 17] = [
    ("KubernetesAPI", Some("create pods"), "server: create pods"),
    (
        "admission",
        Some("create pods"),
        "server:   admission, each of its parts",
    ),
    ("commit", Some("create pods"), "server:   commit"),
    ("Scheduling", None, "scheduler: Scheduling"),
    ("Binding", None, "scheduler: Binding"),
    ("commit", Some("create pods/binding"), "server:   commit"),
    ("volumes", None, "agent: volumes"),
    ("EnsureImageExists", None, "agent: EnsureImageExists"),
    ("RunPodSandbox", None, "agent: RunPodSandbox"),
    ("cgroup", None, "agent:   cgroup"),
    ("shim", None, "agent:   shim"),
    ("network", None, "agent:   network"),
    ("CreateContainer", None, "agent: CreateContainer"),
    ("StartContainer", None, "agent: StartContainer"),
    ("probe", None, "agent: probe"),
    ("PatchPodStatus", None, "agent: PatchPodStatus"),
    ("commit", Some("patch pods/status"), "server:   commit"),
];

/// One line of the breakdown.
pub(crate) struct Stage {
    pub(crate) what: String,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Bench {
    pub(crate) fn stages(&mut self) -> anyhow::Result<()> {
        self.stop_process();
        let mut command = self.up_command();
        spans::listen(&mut command);
        self.start_as(command);
        self.within("first-pod")?;
        let told = |bench: &Self| bench.up.as_ref().map(Process::output).unwrap_or_default();
        let before = told(self).len();
        let seen = self.within("staged")?;
        let spans = spans::closed(&told(self)[before..]);
        self.stages
            .push(seen_stage("client: POST answered", &seen["api"]));
        self.stages.push(seen_stage(
            "client: bound, as a watch sees it",
            &seen["scheduling"],
        ));
        self.stages.extend(
            STAGES
                .iter()
                .filter_map(|(name, request, what)| stage(&spans, name, *request, what)),
        );
        self.stages.push(seen_stage(
            "client: POST to Ready in the watch",
            &seen["total"],
        ));
        self.stop_process();
        self.start();
        self.within("ready")?;
        Ok(())
    }
}

fn seen_stage(what: &str, seen: &Value) -> Stage {
    let ms = |name: &str| seen[name].as_f64().unwrap_or(f64::NAN);
    Stage {
        what: what.to_owned(),
        p50_ms: ms("p50"),
        p99_ms: ms("p99"),
    }
}

/// `None` if no pod came by.
fn stage(spans: &[Span], name: &str, request: Option<&str>, what: &str) -> Option<Stage> {
    let is_it = |span: &&Span| {
        span.name == name
            && match request {
                Some(request) => span.request().as_deref() == Some(request),
                None => span
                    .text("pod")
                    .is_some_and(|pod| pod.starts_with("default/staged-")),
            }
    };
    let mut times: Vec<Duration> = spans.iter().filter(is_it).map(|span| span.took).collect();
    if times.is_empty() {
        return None;
    }
    Some(Stage {
        what: what.to_owned(),
        p50_ms: percentile(&mut times, 50),
        p99_ms: percentile(&mut times, 99),
    })
}
