//! Why a pod is where it is, or nowhere: what each plugin says about each node, by the code that
//! decides, from the cluster as it is now.
//!
//! A pod that has a node is looked at as if it had none. What a scheduler has in mind and nobody
//! can read, such as bindings on their way, is not seen.

mod advice;
mod show;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use coracle_client::event_recorder;
use coracle_telemetry::Tasks;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    config::SchedulerConfig,
    framework::{
        Code, CycleState, Diagnosis, Failed, Framework, Nomination, PluginName, Scores, Status,
    },
    pod_info::PodInfo,
    scheduler::Scheduler,
    snapshot::Snapshot,
    sync::{self, HeldWhole, Inbox},
};

/// How long reading the cluster may take.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long informers get to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What is said of a pod; its text is for people.
#[derive(Debug)]
pub struct Explanation {
    pod: String,
    scheduler: String,
    /// Where it is.
    node: Option<String>,
    /// Where room is made for it.
    nominated: Option<String>,
    found: Found,
}

/// How far an attempt comes.
#[derive(Debug)]
enum Found {
    /// It is not tried at all.
    Held(Vec<Said>),
    /// A plugin has said no before any node was looked at.
    Refused(Vec<Said>),
    /// What is said of each node.
    Nodes {
        refusing: Vec<(String, Vec<Said>)>,
        feasible: Vec<String>,
        scores: Vec<Scores>,
        /// Who would end to make room for it, where none fits.
        preemption: Preemption,
    },
}

#[derive(Debug)]
enum Preemption {
    NotAsked,
    /// Why nobody would.
    Nobody(String),
    Of {
        node: String,
        victims: Vec<String>,
    },
}

/// What one plugin says against the pod.
#[derive(Debug)]
struct Said {
    plugin: Option<PluginName>,
    message: String,
    /// Whether it may be otherwise if some pods end.
    is_resolvable: bool,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhyError {
    /// The API server could not be asked, or refused.
    #[error("read pod {namespace}/{name}")]
    Read {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the API server said.
        #[source]
        source: kube::Error,
    },
    /// It is not there.
    #[error(
        "there is no pod {namespace}/{name}: kubectl get pods -A lists them, --namespace says where"
    )]
    NoPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// No profile is for it.
    #[error(
        "pod {pod} asks for scheduler {asked:?}, and this configuration has {has}: give its --scheduler-config"
    )]
    OthersPod {
        /// The pod.
        pod: String,
        /// Its `schedulerName`.
        asked: String,
        /// The names of the profiles.
        has: String,
    },
    /// The cluster could not be read in time.
    #[error("nodes, pods and what else counts were not read within {} s: is the API server well, and may you read all of it?", READ_TIMEOUT.as_secs())]
    Slow,
    /// A plugin has failed.
    #[error("a plugin has failed: {0}")]
    Plugin(String),
}

impl From<&Status> for Said {
    fn from(status: &Status) -> Self {
        Self {
            plugin: status.plugin(),
            message: match status.message() {
                nothing if nothing.is_empty() => "it does not say why".to_owned(),
                message => message,
            },
            is_resolvable: status.code() == Code::Unschedulable,
        }
    }
}

/// Explains a pod by what `client` can read.
///
/// # Errors
/// [`WhyError`].
pub async fn why(
    client: Client,
    config: SchedulerConfig,
    namespace: &str,
    name: &str,
) -> Result<Explanation, WhyError> {
    let names = || (namespace.to_owned(), name.to_owned());
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get_opt(name).await.map_err(|source| {
        let (namespace, name) = names();
        WhyError::Read {
            namespace,
            name,
            source,
        }
    })?;
    let pod = pod.and_then(PodInfo::whole).ok_or_else(|| {
        let (namespace, name) = names();
        WhyError::NoPod { namespace, name }
    })?;
    if !config
        .names()
        .any(|name| pod.scheduler_name.as_str() == name)
    {
        return Err(WhyError::OthersPod {
            pod: pod.key(),
            asked: pod.scheduler_name.to_string(),
            has: config.names().collect::<Vec<_>>().join(", "),
        });
    }
    let mut scheduler = read(client, config).await?;
    scheduler.explain(pod)
}

/// A scheduler that knows all and does nothing.
async fn read(client: Client, config: SchedulerConfig) -> Result<Scheduler, WhyError> {
    let (recorder, _) = event_recorder::channel(client.clone(), None, Duration::ZERO);
    let inbox = Arc::new(Inbox::default());
    let names = config.names().map(str::to_owned).collect();
    let mut tasks = Tasks::new(CancellationToken::new());
    let whole = HeldWhole::by(&config);
    let synced = sync::informers(&client, names, whole, &inbox).spawn(&mut tasks);
    let ended = timeout(READ_TIMEOUT, synced).await;
    tasks.stop().cancel();
    tasks.finish(STOP_TIMEOUT).await;
    ended.map_err(|_| WhyError::Slow)?;
    let mut scheduler = Scheduler::new(client, config, recorder, CancellationToken::new());
    inbox.take().for_each(|event| scheduler.apply(event));
    Ok(scheduler)
}

impl Scheduler {
    fn explain(&mut self, mut pod: PodInfo) -> Result<Explanation, WhyError> {
        let framework = self.profiles.of(&pod).clone();
        let nominated = self.cache.nomination(&pod.uid).map(str::to_owned);
        self.cache.remove_pod(&pod.uid);
        let node = pod.node_name.take().map(|node| node.to_string());
        let found = self.find(&framework, &pod, nominated.as_deref())?;
        Ok(Explanation {
            pod: pod.key(),
            scheduler: pod.scheduler_name.to_string(),
            node,
            nominated,
            found,
        })
    }

    fn find(
        &mut self,
        framework: &Framework,
        pod: &PodInfo,
        nominated: Option<&str>,
    ) -> Result<Found, WhyError> {
        let status = framework.run_pre_enqueue(pod);
        if !status.is_success() {
            return Ok(Found::Held(vec![Said::from(&status)]));
        }
        let _higher = self.cache.lift(pod);
        let (mut cycle, snapshot) = (CycleState::default(), self.cache.snapshot());
        let narrowed = match framework.run_pre_filter(&mut cycle, pod, &snapshot) {
            Ok(narrowed) => narrowed,
            Err(status) if status.is_refusal() => {
                return Ok(Found::Refused(vec![Said::from(&status)]));
            }
            Err(status) => return Err(WhyError::Plugin(status.message())),
        };
        let mut diagnosis = Diagnosis::of(snapshot.nodes().len());
        let (mut refusing, mut feasible) = (Vec::new(), Vec::new());
        for (position, node) in snapshot.nodes().iter().enumerate() {
            let mut refusals = framework.explain_filters(&cycle, pod, node);
            if let Some(narrowed) = &narrowed
                && !narrowed.names.contains(&node.name)
            {
                let status = Status::unresolvable(vec![narrowed.reason().into()]);
                let by = narrowed.by.first();
                refusals.insert(0, by.map_or(Status::SUCCESS, |name| status.by(*name)));
            }
            match refusals.first() {
                None => feasible.push(node),
                Some(first) => {
                    diagnosis.add(position, first);
                    let said = refusals.iter().map(Said::from).collect();
                    refusing.push((node.name.clone(), said));
                }
            }
        }
        let sifted = framework.extenders.filter(pod, feasible);
        let sifted = sifted.map_err(|status| WhyError::Plugin(status.message()))?;
        sifted.tell(&mut diagnosis, &snapshot);
        let refused = sifted.refused.iter();
        refusing.extend(refused.map(|(node, status)| (node.name.clone(), vec![status.into()])));
        let feasible = sifted.kept;
        let scores = scored(framework, &mut cycle, pod, &feasible, &snapshot)?;
        let feasible: Vec<String> = feasible.iter().map(|node| node.name.clone()).collect();
        let preemption = match feasible.is_empty() && !refusing.is_empty() {
            true => preempted(&framework.run_post_filter(&mut Failed {
                filters: framework,
                extenders: &framework.extenders,
                cycle: &cycle,
                pod,
                diagnosis: &diagnosis,
                nominated,
                cache: &mut self.cache,
            })),
            false => Preemption::NotAsked,
        };
        Ok(Found::Nodes {
            refusing,
            feasible,
            scores,
            preemption,
        })
    }
}

fn scored(
    framework: &Framework,
    cycle: &mut CycleState,
    pod: &PodInfo,
    feasible: &[&crate::node_info::NodeInfo],
    snapshot: &Snapshot<'_>,
) -> Result<Vec<Scores>, WhyError> {
    if feasible.is_empty() {
        return Ok(Vec::new());
    }
    let scores = framework.explain_scores(cycle, pod, feasible, snapshot);
    scores.map_err(|status| WhyError::Plugin(status.message()))
}

fn preempted((nomination, message): &(Nomination, String)) -> Preemption {
    match nomination {
        Nomination::Node { name, victims } => Preemption::Of {
            node: name.clone(),
            victims: victims.iter().map(|victim| victim.key()).collect(),
        },
        _ => Preemption::Nobody(message.clone()),
    }
}
