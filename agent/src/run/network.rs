//! The node's network: Service rules, routes to other nodes, and who hears of it when they cannot
//! be kept.

use std::{path::PathBuf, sync::Arc};

use coracle_netfilter::engine::Refusal;
use coracle_telemetry::{ErrorChain, Health, Tasks};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Groups, Parts, REPAIR_INTERVAL, RESTART, parts::Guarded};
use crate::{
    AgentConfig,
    blocking::blocking,
    connections::Connections,
    dns::{self, DnsConfig, Names},
    events::{EventRecorder, EventType},
    explain::{self, Gatherer},
    informers::Informers,
    network::routes,
    policy::{self, Keeper, KeeperConfig},
    proxy::{self, News, health::RulesView},
};

/// News comes with each write; what tells it is quick.
const NEWS_QUEUE: usize = 64;
/// kube-proxy's, where load balancers of clouds look for it.
const HEALTHZ_PORT: u16 = 10_256;

pub(super) fn spawn(
    groups: &mut Groups,
    config: &AgentConfig,
    parts: &mut Parts,
    (informers, client): (&mut Informers, kube::Client),
    events: EventRecorder,
) {
    spawn_dns(groups, config, informers, events.clone());
    let guarded = parts.guarded.take();
    let policies = spawn_policies(groups, config, guarded, (informers, &events));
    let cni = parts.cni.as_ref();
    let Groups { tasks, health, .. } = groups;
    let shutdown = tasks.stop();
    let foreign = config.cni_conf_dir.is_some();
    let (sender, news) = mpsc::channel(NEWS_QUEUE);
    let rules_lost = Arc::new(Notify::new());
    let view = parts.rules.clone();
    let herald = Herald {
        node: config.node_name.clone(),
        events: events.clone(),
        rules_lost: Arc::clone(&rules_lost),
        view,
    };
    tasks.add("tell of Service rules", herald.run(news, shutdown.clone()));
    let sources = proxy::Sources::new(informers)
        .without(config.dns_address())
        .beside(parts.published.clone(), parts.listeners.clone());
    let gatherer = Gatherer::new(config, client, informers, sources.clone(), policies)
        .with_network(cni.cloned());
    spawn_explanations(tasks, health, (gatherer, config.run_dir.clone()));
    let proxy_config = proxy::ProxyConfig {
        mode: config.proxy_mode,
        node_ip: Some(config.node_ip),
        cluster_cidrs: config.cluster_cidr.into_iter().collect(),
        service_cidrs: config.service_cidr.into_iter().collect(),
        own_service_ip: config.dns_address(),
        node_port_cidrs: config.node_port_cidrs(),
        pod_interface: (!foreign).then(|| config.bridge.clone()),
        repair_interval: REPAIR_INTERVAL,
        api_port: Some(config.listen.port()),
        healthz_port: Some(HEALTHZ_PORT),
        news: Some(sender),
    };
    tasks.keep("service-proxy", RESTART, health, move |stop| {
        proxy::run(sources.clone(), proxy_config.clone(), stop)
    });
    watch(tasks, parts, events);
    if foreign {
        // A foreign network routes by itself; what an earlier run with the own one left would be in
        // its way.
        tasks.add("routes of an own network", leave_routes_to_others(shutdown));
        return;
    }
    let routes_config = routes::RoutesConfig {
        node_name: config.node_name.clone(),
        node_ip: Some(config.node_ip),
        network: cni.cloned().map(Arc::new),
        cluster_cidr: config.cluster_cidr,
        repair_interval: REPAIR_INTERVAL,
        rules_lost,
    };
    let source = routes::Source::new(informers);
    tasks.keep("routes", RESTART, health, move |stop| {
        routes::run(source.clone(), routes_config.clone(), stop)
    });
}

/// What looks after connections and plugins.
fn watch(tasks: &mut Tasks, parts: &Parts, events: EventRecorder) {
    let stop = tasks.stop();
    let connections = Connections::new(parts.places.clone(), parts.cni.clone(), events);
    tasks.add(
        "watch the table of connections",
        connections.run(stop.clone()),
    );
    if let Some(cni) = parts.cni.clone() {
        tasks.add("ask CNI plugins for their status", async move {
            cni.keep_status(stop).await;
        });
    }
}

/// What answers names, or, if others do, nothing that is in their way.
fn spawn_dns(
    groups: &mut Groups,
    config: &AgentConfig,
    informers: &mut Informers,
    events: EventRecorder,
) {
    let Groups { tasks, health, .. } = groups;
    let Some(dns_config) = DnsConfig::of(config) else {
        tasks.keep(
            "leave names to others",
            RESTART,
            health,
            |stop| async move {
                blocking(dns::give_back).await?;
                stop.cancelled().await;
                Ok::<(), dns::GroundError>(())
            },
        );
        return;
    };
    let names = Names::new(informers);
    let remember = names.clone().remember(config.names_file(), tasks.stop());
    tasks.add("remember names", remember);
    tasks.keep("answer names", RESTART, health, move |stop| {
        dns::keep_answering(dns_config.clone(), names.clone(), events.clone(), stop)
    });
}

/// Who asks what is programmed gets an answer.
fn spawn_explanations(
    tasks: &mut Tasks,
    health: &Health,
    (gatherer, run_dir): (Gatherer, PathBuf),
) {
    let gatherer = Arc::new(gatherer);
    tasks.keep("explain the network", RESTART, health, move |stop| {
        explain::serve(Arc::clone(&gatherer), run_dir.clone(), stop)
    });
}

/// What holds pods to their policies.
fn spawn_policies(
    groups: &mut Groups,
    config: &AgentConfig,
    guarded: Option<Guarded>,
    (informers, events): (&mut Informers, &EventRecorder),
) -> Option<policy::Sources> {
    let Guarded { heard, attached } = guarded?;
    let keeper_config = KeeperConfig {
        node_name: config.node_name.clone(),
        dns_address: config.dns_address(),
        bridge: config.cni_conf_dir.is_none().then(|| config.bridge.clone()),
        attached,
        selected: config.selected_file(),
    };
    let sources = policy::Sources::new(informers);
    let keeper = Keeper::new(sources.clone(), heard, events.clone(), keeper_config);
    let stop = groups.tasks.stop();
    groups
        .tasks
        .add("enforce NetworkPolicies", keeper.run(stop));
    Some(sources)
}

async fn leave_routes_to_others(shutdown: CancellationToken) {
    match tokio::task::spawn_blocking(routes::remove_all).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = %ErrorChain(&error), "cannot remove own routes, which a foreign network does not expect")
        }
    }
    shutdown.cancelled().await;
}

/// Tells others what the proxy says.
struct Herald {
    node: String,
    events: EventRecorder,
    rules_lost: Arc<Notify>,
    view: RulesView,
}

impl Herald {
    async fn run(self, mut news: mpsc::Receiver<News>, shutdown: CancellationToken) {
        while let Some(Some(one)) = shutdown.run_until_cancelled(news.recv()).await {
            self.tell(one);
        }
        shutdown.cancelled().await;
    }

    fn tell(&self, news: News) {
        match news {
            News::Refused(refusal) => self.tell_of_service(refusal, "has no rules for it"),
            News::Withheld(refusal) => self.tell_of_service(refusal, "leaves to those who have it"),
            News::HealthCheckFailed { refusal, port } => {
                let Refusal { service, why, .. } = &refusal;
                let message = format!(
                    "node {} failed to start healthcheck \"{service}\" on port {port}: {why}; it is tried again",
                    self.node
                );
                self.warn_of_service(refusal, "FailedToStartServiceHealthcheck", message);
            }
            News::Failing { why } => {
                let message = format!("no Service can be changed on this node: {why}");
                if self.view.failing(why) {
                    self.events
                        .node(EventType::Warning, "ServiceRulesFailing", message);
                }
            }
            News::Written { refused } => {
                if self.view.written(refused) {
                    self.events.node(
                        EventType::Normal,
                        "ServiceRulesWritten",
                        "Services can be changed again".to_owned(),
                    );
                }
            }
            // Whoever removed the proxy's rules has mostly removed the pod network's, too.
            News::Repaired => self.rules_lost.notify_one(),
        }
    }

    fn tell_of_service(&self, refusal: Refusal, what: &str) {
        let message = format!("node {} {what}: {}", self.node, refusal.why);
        self.warn_of_service(refusal, "FailedToProgramService", message);
    }

    fn warn_of_service(&self, refusal: Refusal, reason: &'static str, message: String) {
        let Refusal { service, uid, .. } = refusal;
        self.events.service(
            &service.namespace,
            &service.name,
            uid,
            EventType::Warning,
            reason,
            message,
        );
    }
}
