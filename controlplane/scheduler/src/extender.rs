//! Speaks with one extender over HTTP, in the words of upstream's protocol.
//!
//! Each question is a POST with a deadline, and nothing is asked twice: whoever is left without an
//! answer decides what that means. Redirects are not followed, and no proxy is asked.
//!
//! | module | does |
//! |---|---|
//! | `call` | one question and its answer |
//! | `wire` | what is written and read |
//!
//! Source: `pkg/scheduler/extender.go` at v1.37.

mod call;
mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Container, Node, Pod};

use self::{
    call::Caller,
    wire::{
        BindingArgs, BindingResult, FilterResult, HostPriorities, MetaPod, MetaVictims, NodeArgs,
        NodeList, PreemptionArgs, PreemptionResult, Victims,
    },
};
use crate::{
    config::{ExtenderConfig, Verb},
    framework::{Asked, Candidate, Extender, ExtenderError, ExtenderVerb, Filtered, NamedVictims},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

/// One that is reached at an address.
pub(crate) struct HttpExtender {
    config: ExtenderConfig,
    caller: Caller,
}

impl HttpExtender {
    pub(crate) fn new(config: ExtenderConfig) -> Self {
        let caller = Caller::new(&config);
        Self { config, caller }
    }

    fn verb(&self, verb: ExtenderVerb) -> Option<&Verb> {
        let config = &self.config;
        match verb {
            ExtenderVerb::Filter => config.filter.as_ref(),
            ExtenderVerb::Prioritize => config.prioritize.as_ref(),
            ExtenderVerb::Preempt => config.preempt.as_ref(),
            ExtenderVerb::Bind => config.bind.as_ref(),
        }
    }

    /// The pod with the nodes: their names, if those are enough.
    fn about<'a>(
        &self,
        pod: &'a PodInfo,
        nodes: &[&'a NodeInfo],
    ) -> Result<NodeArgs<'a>, ExtenderError> {
        let pod = whole(pod)?;
        let names = || nodes.iter().map(|node| &*node.name).collect();
        let objects = nodes.iter().map(|node| whole_node(node));
        Ok(match self.config.node_cache_capable {
            true => NodeArgs {
                pod,
                nodes: None,
                node_names: Some(names()),
            },
            false => NodeArgs {
                pod,
                nodes: Some(NodeList::of(objects.collect::<Result<_, _>>()?)),
                node_names: None,
            },
        })
    }

    fn about_victims<'a>(
        &self,
        pod: &'a PodInfo,
        candidates: &[(&'a str, &'a Candidate)],
    ) -> Result<PreemptionArgs<'a>, ExtenderError> {
        let all = candidates.iter();
        let named = |(name, candidate): &(&'a str, &'a Candidate)| {
            let pods = candidate.victims.iter();
            let pods = pods.map(|pod| MetaPod {
                uid: pod.uid.0.to_string(),
            });
            let victims = MetaVictims {
                pods: pods.collect(),
                violations: violations(candidate),
            };
            (*name, victims)
        };
        let held = |(name, candidate): &(&'a str, &'a Candidate)| {
            let pods = candidate.victims.iter().map(|pod| whole(pod));
            let victims = Victims {
                pods: pods.collect::<Result<_, _>>()?,
                violations: violations(candidate),
            };
            Ok((*name, victims))
        };
        let (victims, meta_victims) = match self.config.node_cache_capable {
            true => (None, Some(all.map(named).collect())),
            false => (Some(all.map(held).collect::<Result<_, _>>()?), None),
        };
        Ok(PreemptionArgs {
            pod: whole(pod)?,
            victims,
            meta_victims,
        })
    }

    async fn ask<A: serde::Serialize, R: for<'de> serde::Deserialize<'de> + Default>(
        &self,
        verb: ExtenderVerb,
        args: Result<A, ExtenderError>,
    ) -> Result<R, ExtenderError> {
        match self.verb(verb) {
            Some(verb) => self.caller.send(verb, &args?).await,
            // Nothing is said where nobody asks.
            None => Ok(R::default()),
        }
    }
}

fn violations(candidate: &Candidate) -> i64 {
    i64::try_from(candidate.violations).unwrap_or(i64::MAX)
}

fn whole(pod: &PodInfo) -> Result<&Arc<Pod>, ExtenderError> {
    let object = pod.object.as_ref();
    object.ok_or_else(|| ExtenderError::NotHeld(pod.key()))
}

fn whole_node(node: &NodeInfo) -> Result<&Arc<Node>, ExtenderError> {
    let object = node.object.as_ref();
    object.ok_or_else(|| ExtenderError::NotHeld(node.name.clone()))
}

impl Extender for HttpExtender {
    fn name(&self) -> &str {
        &self.config.url_prefix
    }

    fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    fn does(&self, verb: ExtenderVerb) -> bool {
        self.verb(verb).is_some()
    }

    /// By what its containers ask for or are limited to.
    fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.config.managed_resources;
        if managed.is_empty() {
            return true;
        }
        let asks = |container: &Container| {
            let resources = container.resources.as_ref();
            let lists = resources.map(|all| all.requests.iter().chain(&all.limits));
            let mut names = lists.into_iter().flatten().flat_map(BTreeMap::keys);
            names.any(|name| managed.contains(name))
        };
        let spec = pod.object.as_ref().and_then(|pod| pod.spec.as_ref());
        spec.is_some_and(|spec| {
            let first = spec.init_containers.iter().flatten();
            spec.containers.iter().chain(first).any(asks)
        })
    }

    fn weight(&self) -> i64 {
        self.config.weight
    }

    fn filter<'a>(&'a self, pod: &'a PodInfo, nodes: &'a [&'a NodeInfo]) -> Asked<'a, Filtered> {
        async move {
            let args = self.about(pod, nodes);
            let result: FilterResult = self.ask(ExtenderVerb::Filter, args).await?;
            result.filtered(self.config.node_cache_capable)
        }
        .boxed()
    }

    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: &'a [&'a NodeInfo],
    ) -> Asked<'a, HashMap<String, i64>> {
        async move {
            let args = self.about(pod, nodes);
            let HostPriorities(all) = self.ask(ExtenderVerb::Prioritize, args).await?;
            let mut scores: HashMap<String, i64> = HashMap::new();
            for one in all {
                let score = scores.entry(one.host).or_default();
                *score = score.saturating_add(one.score);
            }
            Ok(scores)
        }
        .boxed()
    }

    fn process_preemption<'a>(
        &'a self,
        pod: &'a PodInfo,
        candidates: &'a [(&'a str, &'a Candidate)],
    ) -> Asked<'a, BTreeMap<String, NamedVictims>> {
        async move {
            let args = self.about_victims(pod, candidates);
            let result: PreemptionResult = self.ask(ExtenderVerb::Preempt, args).await?;
            let nodes = result.nodes.into_iter();
            let meant = nodes.map(|(node, victims)| (node, victims.unwrap_or_default().into()));
            Ok(meant.collect())
        }
        .boxed()
    }

    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Asked<'a, ()> {
        async move {
            let args = BindingArgs {
                pod_name: &pod.name,
                pod_namespace: &pod.namespace,
                pod_uid: &pod.uid.0,
                node,
            };
            let result: BindingResult = self.ask(ExtenderVerb::Bind, Ok(args)).await?;
            match result.error.is_empty() {
                true => Ok(()),
                false => Err(ExtenderError::Said(result.error)),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
