//! Scales what HorizontalPodAutoscalers name, so that its pods use as much as they should.
//!
//! ```text
//! every 15 s: scale subresource > pods it selects > what they use > replicas > limits > scale, status
//! ```
//! Reads autoscalers and pods from caches, the target's scale and `metrics.k8s.io` live; writes the
//! scale and the autoscaler's status, and neither if nothing has changed. What slows it down is
//! kept in memory, as upstream does.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` at v1.37.

mod history;
mod limits;
mod metrics;
mod plan;
mod replicas;
mod requests;
mod status;
mod target;
#[cfg(test)]
mod tests;
mod usage;

use std::{collections::HashMap, sync::Arc};

use coracle_api::selector::{LabelSelector, Operator};
use coracle_telemetry::ErrorChain;
use k8s_openapi::{api::autoscaling::v2::HorizontalPodAutoscaler, jiff::Timestamp};
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::{
    history::History,
    metrics::{Measured, is_measured},
    plan::{Decision, Next, Round},
    replicas::{Seen, Warmup},
    status::{Draft, SCALING_ACTIVE},
    target::{Target, Targets},
};
use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{
        Cache, Change, Key,
        labels::{Pair, Selected},
    },
    config::PodAutoscalerConfig,
    context::Context,
    controller::{Outcome, ReconcileError, Reconciler},
    errors::message_of,
    event_recorder::{EventType, component::ComponentRecorder},
    pod::Pod,
    writes::Write,
};

/// Autoscalers worked on at once.
const WORKERS: usize = 5;

/// The controller.
pub(crate) struct PodAutoscalerController {
    client: Client,
    recorder: ComponentRecorder,
    config: PodAutoscalerConfig,
    autoscalers: Arc<Cache<HorizontalPodAutoscaler>>,
    pods: Selected<Pod>,
    targets: Targets,
    known: Mutex<HashMap<Key, Known>>,
}

/// What is remembered of an autoscaler while it lives.
#[derive(Default)]
struct Known {
    history: History,
    /// Which pods its target had when it was looked at last.
    selector: Option<LabelSelector>,
}

impl PodAutoscalerController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "horizontal-pod-autoscaler-controller";
        let mut controller =
            Builder::managed_by(manager, name, "horizontalpodautoscaler").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            recorder: context.recorder.of("horizontal-pod-autoscaler"),
            config: context.config.pod_autoscaler,
            autoscalers: controller.reads(),
            pods: controller.selected(),
            targets: Targets::new(context.client.clone(), Arc::clone(&context.kinds)),
            known: Mutex::default(),
        });
        controller.on_change(&this, Self::changed);
        controller.complete(this);
    }

    /// A change is looked at when the next round is due, as upstream does: its own status is one.
    fn changed(&self, change: &Change<'_, HorizontalPodAutoscaler>, queue: &Queue) {
        let key = Key::of(change.latest().as_ref());
        match change {
            Change::Deleted(_) => queue.add(key),
            _ => queue.add_after(key, self.config.sync_period),
        }
    }
}

impl Reconciler for PodAutoscalerController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(hpa) = self.autoscalers.get(&key) else {
            self.known.lock().remove(&key);
            return Ok(None);
        };
        let mut draft = Draft::of(&hpa, Timestamp::now());
        self.round(&key, &hpa, &mut draft).await;
        self.publish(&hpa, draft).await;
        // What has failed is told by the status and Events, and looked at again like the rest.
        Ok(Some(self.config.sync_period))
    }
}

impl PodAutoscalerController {
    async fn round(&self, key: &Key, hpa: &HorizontalPodAutoscaler, draft: &mut Draft) {
        let reference = &hpa.spec.scale_target_ref;
        let mut target = match self.targets.find(&key.namespace, reference).await {
            Ok(target) => target,
            Err(why) => return draft.no_scale(&why),
        };
        let message = "the HPA controller was able to get the target's current scale";
        draft.condition(status::ABLE_TO_SCALE, true, "SucceededGetScale", message);
        let current = target.replicas();
        let begun = |known: &mut Known| known.history.begin(current, Instant::now());
        self.with_known(key, begun);
        let decision = match plan::next(hpa, current) {
            Next::Disabled => Some(plan::disabled(draft)),
            Next::Bound { to, reason } => Some(Decision {
                current,
                desired: to,
                rescale: Some(reason.to_owned()),
                metrics: None,
            }),
            Next::Measure => self.measure(key, hpa, &target, draft).await,
        };
        let Some(decision) = decision else { return };
        let written = match &decision.rescale {
            Some(_) => target.scale(decision.desired).await,
            None => Ok(()),
        };
        self.with_known(key, |known| {
            let history = &mut known.history;
            plan::settle(hpa, decision, written, history, draft, Instant::now());
        });
    }

    async fn measure(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        target: &Target,
        draft: &mut Draft,
    ) -> Option<Decision> {
        let current = target.replicas();
        let pods = match self.pods_of(key, target.selector(), draft) {
            Ok(pods) => pods,
            Err(why) => {
                draft.settle(current, None, None);
                draft.warn("FailedComputeMetricsReplicas", why);
                return None;
            }
        };
        let specs = hpa.spec.metrics.as_deref().unwrap_or_default();
        let measured: Measured = if specs.iter().any(is_measured) {
            Some(usage::ask(&self.client, &key.namespace, target.selector()).await)
        } else {
            None
        };
        let config = &self.config;
        let seen = Seen {
            pods: &pods,
            current,
            resource: "",
            tolerances: plan::tolerances(hpa, config.tolerance),
            warmup: Warmup {
                cpu_initialization: config.cpu_initialization_period,
                initial_readiness: config.initial_readiness_delay,
            },
            now: Timestamp::now(),
        };
        let round = Round {
            hpa,
            seen,
            measured: &measured,
            downscale_stabilization: config.downscale_stabilization,
            now: Instant::now(),
        };
        self.with_known(key, |known| {
            plan::measured(&round, &mut known.history, draft)
        })
    }

    /// The pods of the target, if they are nobody else's.
    ///
    /// Source: `validateAndParseSelector`.
    fn pods_of(
        &self,
        key: &Key,
        selector: &str,
        draft: &mut Draft,
    ) -> Result<Vec<Arc<Pod>>, String> {
        let mut invalid = |event, reason, why: String, message: Option<&str>| {
            draft.warn(event, why.clone());
            let message = message.unwrap_or(&why);
            draft.condition(SCALING_ACTIVE, false, reason, message);
            why
        };
        if selector.is_empty() {
            let message = "the HPA target's scale is missing a selector";
            let why = "selector is required".to_owned();
            return Err(invalid(
                "SelectorRequired",
                "InvalidSelector",
                why,
                Some(message),
            ));
        }
        let parsed = LabelSelector::parse(selector).map_err(|error| {
            let why = format!(
                "couldn't convert selector into a corresponding internal selector object: {error}"
            );
            invalid("InvalidSelector", "InvalidSelector", why, None)
        })?;
        let pods = self.pods.get(&key.namespace, &pairs_of(&parsed), |pod| {
            selects(&parsed, pod)
        });
        let rivals = self.rivals(key, parsed, &pods);
        if rivals.len() > 1 {
            let shown: Vec<String> = rivals
                .iter()
                .map(|rival| format!("{{{} {}}}", rival.name, rival.namespace))
                .collect();
            let shown = shown.join(" ");
            let why =
                format!("pods by selector {selector} are controlled by multiple HPAs: [{shown}]");
            return Err(invalid("AmbiguousSelector", "AmbiguousSelector", why, None));
        }
        Ok(pods)
    }

    /// All that scale one of `pods`, this one among them, in order of name.
    fn rivals(&self, key: &Key, selector: LabelSelector, pods: &[Arc<Pod>]) -> Vec<Key> {
        let mut known = self.known.lock();
        known.entry(key.clone()).or_default().selector = Some(selector);
        let scales = |(other, known): (&Key, &Known)| {
            let selector = known.selector.as_ref()?;
            let is_rival =
                other.namespace == key.namespace && pods.iter().any(|pod| selects(selector, pod));
            is_rival.then(|| other.clone())
        };
        let mut rivals: Vec<Key> = known.iter().filter_map(scales).collect();
        drop(known);
        rivals.sort_by(|one, other| one.name.cmp(&other.name));
        rivals
    }

    fn with_known<T>(&self, key: &Key, act: impl FnOnce(&mut Known) -> T) -> T {
        act(self.known.lock().entry(key.clone()).or_default())
    }

    /// Tells what has happened, and writes the status if it is another one.
    async fn publish(&self, hpa: &HorizontalPodAutoscaler, draft: Draft) {
        for told in draft.events {
            match told.kind {
                EventType::Normal => self.recorder.normal(hpa, told.reason, told.message),
                EventType::Warning => self.recorder.warning(hpa, told.reason, told.message),
            }
        }
        let write = Write::to(&self.client, hpa, "update HorizontalPodAutoscaler status");
        let written = write.status(|hpa| hpa.status = Some(draft.status)).await;
        if let Err(error) = written {
            tracing::debug!(error = %ErrorChain(&error), "status of an autoscaler");
            let why = match &error {
                ReconcileError::Api { source, .. } => message_of(source),
                other => other.to_string(),
            };
            self.recorder.warning(hpa, "FailedUpdateStatus", why);
        }
    }
}

fn selects(selector: &LabelSelector, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector.matches(|key| labels?.get(key).map(String::as_str))
}

/// Pairs of which everything that it selects has one.
fn pairs_of(selector: &LabelSelector) -> Vec<Pair<'_>> {
    let requirements = selector.requirements().iter();
    let one_of = requirements.filter(|required| required.operator == Operator::In);
    let pairs = one_of.map(|required| {
        let values = required.values.iter();
        let pairs = values.map(|value| (required.key.as_str(), value.as_str()));
        pairs.collect::<Vec<_>>()
    });
    pairs.min_by_key(Vec::len).unwrap_or_default()
}
