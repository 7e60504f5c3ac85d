//! Asks the extenders that have a say about a pod, and makes sense of their answers.
//!
//! An attempt waits for them where upstream's does: one pod is decided at a time, so the next waits
//! for as long as an extender takes, its deadline at most. Where none is interested in a pod, that
//! is found out without a request, a lock or an allocation. Bindings wait beside all that.
//!
//! Source: `findNodesThatPassExtenders`, `prioritizeNodes` and `extendersBinding` in
//! `pkg/scheduler/schedule_one.go`, `callExtenders` in
//! `pkg/scheduler/framework/preemption/preemption.go` at v1.37.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use coracle_telemetry::ErrorChain;
use futures::future::join_all;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use tokio_util::sync::CancellationToken;

use super::{
    diagnosis::Diagnosis,
    extender::{
        Candidate, Extender, ExtenderError, ExtenderVerb, Filtered, MAX_EXTENDER_PRIORITY,
        NamedVictims,
    },
    plugin_name::PluginName,
    status::{Reason, Status},
};
use crate::{
    node_info::NodeInfo,
    pod_info::{PodInfo, PodUid},
    snapshot::Snapshot,
};

/// Of what an extender says about a node, in characters: a condition holds that of all nodes.
const REASON_MOST: usize = 1024;

/// All extenders, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Extenders {
    all: Vec<Box<dyn Extender>>,
    /// Ends every wait.
    stop: CancellationToken,
}

/// What extenders leave of the nodes that can take a pod.
pub(crate) struct Sifted<'a> {
    pub(crate) kept: Vec<&'a NodeInfo>,
    /// Why others cannot; without a reason if nobody has given one.
    pub(crate) refused: Vec<(&'a NodeInfo, Status)>,
}

impl Extenders {
    /// Those last that may be ignored. They are waited for until `stop`.
    pub(crate) fn new(mut all: Vec<Box<dyn Extender>>, stop: CancellationToken) -> Self {
        all.sort_by_key(|extender| extender.is_ignorable());
        Self { all, stop }
    }

    fn asked<'a>(
        &'a self,
        verb: ExtenderVerb,
        pod: &'a PodInfo,
    ) -> impl Iterator<Item = &'a dyn Extender> {
        let all = self.all.iter().map(AsRef::as_ref);
        all.filter(move |one| one.does(verb) && one.is_interested(pod))
    }

    /// Asks one after the other which of the nodes can take the pod. Each hears of what those
    /// before have left.
    ///
    /// # Errors
    /// One that may not be ignored has failed.
    pub(crate) fn filter<'a>(
        &self,
        pod: &PodInfo,
        feasible: Vec<&'a NodeInfo>,
    ) -> Result<Sifted<'a>, Status> {
        let mut sifted = Sifted {
            kept: feasible,
            refused: Vec::new(),
        };
        for extender in self.asked(ExtenderVerb::Filter, pod) {
            if sifted.kept.is_empty() {
                break;
            }
            let answer = self
                .wait(extender.filter(pod, &sifted.kept))
                .and_then(|filtered| known_nodes(extender, &sifted.kept, filtered));
            match answer {
                Ok(filtered) => sifted.take_out(&filtered),
                Err(error) if may_skip(extender, &error) => skipped(extender, pod, &error),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(sifted)
    }

    /// Whether they leave the only node that is asked about. One that fails does not: the pod is
    /// tried elsewhere, and it is asked again.
    pub(crate) fn allow(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        match self.filter(pod, vec![node]) {
            Ok(sifted) => !sifted.kept.is_empty(),
            Err(status) => {
                let error = status.message();
                tracing::warn!(
                    pod = pod.key(),
                    node = node.name,
                    error,
                    "an extender has failed"
                );
                false
            }
        }
    }

    /// The weighted sum of what all say at once about each node, in the order of `feasible`; `None`
    /// if nobody has a say. Who fails says nothing.
    pub(crate) fn prioritize(&self, pod: &PodInfo, feasible: &[&NodeInfo]) -> Option<Vec<i64>> {
        let asked: Vec<_> = self.asked(ExtenderVerb::Prioritize, pod).collect();
        if asked.is_empty() {
            return None;
        }
        let answers = asked.iter().map(|one| one.prioritize(pod, feasible));
        let answers = match self.wait(async { Ok(join_all(answers).await) }) {
            Ok(answers) => answers,
            Err(error) => vec![Err(error)],
        };
        let mut sums = vec![0_i64; feasible.len()];
        for (extender, answer) in asked.into_iter().zip(answers) {
            let scores = answer.and_then(|scores| known_scores(extender, feasible, &scores));
            match scores {
                Ok(scores) => {
                    for (sum, score) in sums.iter_mut().zip(scores) {
                        *sum = sum.saturating_add(score.saturating_mul(extender.weight()));
                    }
                }
                Err(error) => tracing::warn!(
                    pod = pod.key(),
                    extender = extender.name(),
                    error = %ErrorChain(&error),
                    "an extender gives no scores"
                ),
            }
        }
        Some(sums)
    }

    /// Asks one after the other who of the candidates comes into question.
    ///
    /// # Errors
    /// One that may not be ignored has failed.
    pub(crate) fn process_preemption(
        &self,
        pod: &PodInfo,
        mut candidates: Vec<Candidate>,
        snapshot: &Snapshot<'_>,
    ) -> Result<Vec<Candidate>, Status> {
        for extender in self.asked(ExtenderVerb::Preempt, pod) {
            if candidates.is_empty() {
                break;
            }
            let name = |candidate: &Candidate| &*snapshot.nodes()[candidate.node].name;
            let named: Vec<_> = candidates.iter().map(|one| (name(one), one)).collect();
            let answer = self
                .wait(extender.process_preemption(pod, &named))
                .and_then(|answer| known_victims(extender, pod, &candidates, answer, snapshot));
            match answer {
                Ok(left) => candidates = left,
                Err(error) if may_skip(extender, &error) => skipped(extender, pod, &error),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(candidates)
    }

    /// Whether one of them binds the pod.
    pub(crate) fn have_binder(&self, pod: &PodInfo) -> bool {
        self.asked(ExtenderVerb::Bind, pod).next().is_some()
    }

    /// Lets the one bind the pod that does that; `None` if it is left to the plugins.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &str) -> Option<Status> {
        for extender in self.asked(ExtenderVerb::Bind, pod) {
            match extender.bind(pod, node).await {
                Ok(()) => return Some(Status::SUCCESS),
                Err(error) if extender.is_ignorable() => skipped(extender, pod, &error),
                Err(error) => return Some(failed(&error)),
            }
        }
        None
    }

    /// Waits, in the middle of an attempt, which is no task of its own: the scheduler's has nothing
    /// else to decide, and the runtime's others go on.
    fn wait<T>(
        &self,
        asked: impl Future<Output = Result<T, ExtenderError>>,
    ) -> Result<T, ExtenderError> {
        let runtime = Handle::try_current().map_err(|_| ExtenderError::OneThread)?;
        if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return Err(ExtenderError::OneThread);
        }
        block_in_place(|| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => Err(ExtenderError::Stopped),
                    answer = asked => answer,
                }
            })
        })
    }
}

impl Sifted<'_> {
    /// Why nodes were taken out.
    pub(crate) fn tell(&self, diagnosis: &mut Diagnosis, snapshot: &Snapshot<'_>) {
        for (node, status) in &self.refused {
            if let Some(position) = snapshot.position(&node.name) {
                diagnosis.add(position, status);
            }
        }
    }

    fn take_out(&mut self, filtered: &Filtered) {
        let left: BTreeSet<&str> = filtered.nodes.iter().map(String::as_str).collect();
        let Self { kept, refused } = self;
        kept.retain(|node| {
            let stays = left.contains(&*node.name);
            if !stays {
                let unresolvable = filtered.failed_and_unresolvable.get(&node.name);
                let status = match (unresolvable, filtered.failed.get(&node.name)) {
                    (Some(why), _) => Status::unresolvable(vec![reason(why)]),
                    (None, Some(why)) => Status::unschedulable(vec![reason(why)]),
                    (None, None) => Status::unresolvable(Vec::new()),
                };
                refused.push((node, status.by(PluginName::Extender)));
            }
            stays
        });
    }
}

fn reason(why: &str) -> Reason {
    let cut = why.char_indices().nth(REASON_MOST).map(|(at, _)| at);
    why[..cut.unwrap_or(why.len())].to_owned().into()
}

fn failed(error: &ExtenderError) -> Status {
    let text = ErrorChain(error).to_string();
    Status::error(reason(&text)).by(PluginName::Extender)
}

/// Whether the pod goes on without it; not if that is because the scheduler ends.
fn may_skip(extender: &dyn Extender, error: &ExtenderError) -> bool {
    extender.is_ignorable() && !matches!(error, ExtenderError::Stopped)
}

fn skipped(extender: &dyn Extender, pod: &PodInfo, error: &ExtenderError) {
    tracing::warn!(
        pod = pod.key(),
        extender = extender.name(),
        error = %ErrorChain(error),
        "an extender that may be ignored has failed: the pod goes on without it"
    );
}

/// Refuses an answer with nodes that were not asked about.
fn known_nodes(
    extender: &dyn Extender,
    asked: &[&NodeInfo],
    filtered: Filtered,
) -> Result<Filtered, ExtenderError> {
    let known: BTreeSet<&str> = asked.iter().map(|node| &*node.name).collect();
    let strange = filtered.nodes.iter().find(|node| !known.contains(&***node));
    match strange {
        None => Ok(filtered),
        Some(node) => Err(ExtenderError::StrangeNode {
            extender: extender.name().to_owned(),
            node: node.clone(),
        }),
    }
}

/// The scores in the order of the nodes. Of nodes that were not asked about nothing is taken.
fn known_scores(
    extender: &dyn Extender,
    asked: &[&NodeInfo],
    scores: &HashMap<String, i64>,
) -> Result<Vec<i64>, ExtenderError> {
    let of = |node: &&NodeInfo| match scores.get(&node.name) {
        None => Ok(0),
        Some(score @ 0..=MAX_EXTENDER_PRIORITY) => Ok(*score),
        Some(score) => Err(ExtenderError::Score {
            extender: extender.name().to_owned(),
            node: node.name.clone(),
            score: *score,
        }),
    };
    asked.iter().map(of).collect()
}

/// The pods that are meant. One that may be ignored may leave a node without any: it is none then.
fn known_victims(
    extender: &dyn Extender,
    pod: &PodInfo,
    candidates: &[Candidate],
    answer: BTreeMap<String, NamedVictims>,
    snapshot: &Snapshot<'_>,
) -> Result<Vec<Candidate>, ExtenderError> {
    let mut left = Vec::new();
    for (name, NamedVictims { uids, violations }) in answer {
        let position = snapshot.position(&name);
        let position = position.filter(|at| candidates.iter().any(|one| one.node == *at));
        let Some(node) = position else {
            return Err(ExtenderError::StrangeCandidate {
                extender: extender.name().to_owned(),
                node: name,
            });
        };
        let uids: BTreeSet<PodUid> = uids.into_iter().map(|uid| PodUid(uid.into())).collect();
        let on_node = &snapshot.nodes()[node];
        let victims = uids
            .into_iter()
            .map(|uid| known_victim(extender, pod, on_node, &uid));
        let victims: Vec<Arc<PodInfo>> = victims.collect::<Result<_, _>>()?;
        if victims.is_empty() && extender.is_ignorable() {
            continue;
        }
        if victims.is_empty() {
            return Err(ExtenderError::NoVictim(name));
        }
        left.push(Candidate {
            node,
            victims,
            violations: usize::try_from(violations).unwrap_or(0),
        });
    }
    Ok(left)
}

fn known_victim(
    extender: &dyn Extender,
    pod: &PodInfo,
    node: &NodeInfo,
    uid: &PodUid,
) -> Result<Arc<PodInfo>, ExtenderError> {
    let named = || {
        let extender = extender.name().to_owned();
        (extender, node.name.clone(), uid.0.to_string())
    };
    let Some(victim) = node.pods.get(uid) else {
        let (extender, node, uid) = named();
        return Err(ExtenderError::StrangeVictim {
            extender,
            node,
            uid,
        });
    };
    if victim.priority >= pod.priority {
        let (extender, node, uid) = named();
        return Err(ExtenderError::EqualVictim {
            extender,
            node,
            uid,
        });
    }
    Ok(victim.clone())
}
