//! Work for controllers: a Deployment that is scaled up and down, and Services that come and go.
//! Its pods run on the nodes that there are.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result, bail};
use coracle_tests::faults::plan::Random;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Service},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    Phase,
    server::{Answer, Link},
    writers,
};

const NAMESPACE: &str = "work";
const DEPLOYMENT: &str = "scaled";
/// What the Deployment is scaled to at the end.
const AT_THE_END: u64 = 4;
/// Pods at a time, at most.
const MOST_PODS: u64 = 6;
/// Services at a time, about.
const SERVICES: usize = 30;
/// Longer than a Lease, a new leader's start, and what it has to do then.
const SETTLED: Duration = Duration::from_secs(90);
const STARTED: Duration = Duration::from_secs(60);

fn made<K: DeserializeOwned>(object: Value) -> Result<K> {
    Ok(serde_json::from_value(object)?)
}

/// Tries until it is done or refused, for instance because it is there already.
async fn insist<T, F>(
    link: &mut Link,
    limit: Duration,
    request: impl Fn(&Link) -> F,
) -> Result<Option<T>>
where
    F: Future<Output = kube::Result<T>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let asked = request(link);
        match link.answer(asked).await {
            Answer::Done(answer) => return Ok(Some(answer)),
            Answer::Refused => return Ok(None),
            Answer::Odd(what) => bail!(what),
            Answer::NotNow | Answer::Unknown if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Answer::NotNow | Answer::Unknown => bail!("no answer within {limit:?}"),
        }
    }
}

/// Makes namespaces and the Deployment, and waits until every server knows them.
pub(crate) async fn prepare(servers: &mut [Link], count: usize) -> Result<()> {
    let params = PostParams::default();
    for name in [writers::NAMESPACE, NAMESPACE] {
        let namespace: Namespace = made(json!({"metadata": {"name": name}}))?;
        insist(&mut servers[0], STARTED, |link| {
            let (api, namespace) = (
                Api::<Namespace>::all(link.client.clone()),
                namespace.clone(),
            );
            let params = params.clone();
            async move { api.create(&params, &namespace).await }
        })
        .await?;
    }
    let labels = json!({"app": DEPLOYMENT});
    let deployment: Deployment = made(json!({
        "metadata": {"name": DEPLOYMENT},
        "spec": {
            "replicas": AT_THE_END,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent",
                        "command": ["sleep", "36000"]}],
                },
            },
        },
    }))?;
    insist(&mut servers[0], STARTED, |link| {
        let (api, deployment) = (deployments(link), deployment.clone());
        let params = params.clone();
        async move { api.create(&params, &deployment).await }
    })
    .await?;
    for link in servers.iter_mut().take(count) {
        let found = insist(link, STARTED, |link| {
            let api = deployments(link);
            async move { api.get(DEPLOYMENT).await }
        })
        .await?;
        found.with_context(|| format!("server {} has no Deployment", link.server))?;
    }
    Ok(())
}

fn deployments(link: &Link) -> Api<Deployment> {
    Api::namespaced(link.client.clone(), NAMESPACE)
}

async fn scale_to(link: &mut Link, replicas: u64) -> bool {
    let (api, params) = (deployments(link), PatchParams::default());
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    matches!(
        link.answer(api.patch(DEPLOYMENT, &params, &patch)).await,
        Answer::Done(_)
    )
}

/// Scales the Deployment up and down.
pub(crate) async fn scale(
    mut servers: Vec<Link>,
    mut random: Random,
    phase: watch::Receiver<Phase>,
) {
    while *phase.borrow() == Phase::Work {
        let index = random.index(servers.len());
        scale_to(&mut servers[index], random.below(MOST_PODS + 1)).await;
        tokio::time::sleep(Duration::from_millis(500 + random.below(2000))).await;
    }
}

/// Makes Services with an address and a port of the nodes, and deletes them.
pub(crate) async fn services(
    mut servers: Vec<Link>,
    mut random: Random,
    phase: watch::Receiver<Phase>,
) {
    let mut names: Vec<String> = Vec::new();
    let mut number = 0;
    while *phase.borrow() == Phase::Work {
        number += 1;
        let name = format!("s{number}");
        let service = json!({"metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}], "selector": {"app": DEPLOYMENT}}});
        if let Ok(service) = made::<Service>(service) {
            // Several at once, each on another server: they draw at the same time.
            let requests = servers.iter_mut().enumerate().map(|(index, link)| {
                let api: Api<Service> = Api::namespaced(link.client.clone(), NAMESPACE);
                let mut service = service.clone();
                service.metadata.name = Some(format!("{name}-{index}"));
                async move {
                    let params = PostParams::default();
                    link.answer(api.create(&params, &service)).await;
                }
            });
            let requests: Vec<_> = requests.collect();
            futures::future::join_all(requests).await;
            names.extend((0..servers.len()).map(|index| format!("{name}-{index}")));
        }
        while names.len() > SERVICES {
            let name = names.swap_remove(random.index(names.len()));
            let index = random.index(servers.len());
            let api: Api<Service> = Api::namespaced(servers[index].client.clone(), NAMESPACE);
            let params = DeleteParams::default();
            servers[index].answer(api.delete(&name, &params)).await;
        }
        tokio::time::sleep(Duration::from_millis(300 + random.below(700))).await;
    }
}

/// Scales the Deployment a last time, and waits until as many pods are there, and no others.
pub(crate) async fn settle(servers: &mut [Link]) -> Result<()> {
    let deadline = Instant::now() + SETTLED;
    while !scale_to(&mut servers[0], AT_THE_END).await {
        if Instant::now() > deadline {
            bail!("it cannot be scaled");
        }
    }
    loop {
        let found = insist(&mut servers[0], SETTLED, |link| {
            let api: Api<k8s_openapi::api::core::v1::Pod> =
                Api::namespaced(link.client.clone(), NAMESPACE);
            async move { api.list(&ListParams::default()).await }
        })
        .await?;
        let pods = found.map_or(0, |list| list.items.len());
        let status = insist(&mut servers[0], SETTLED, |link| {
            let api = deployments(link);
            async move { api.get(DEPLOYMENT).await }
        })
        .await?;
        let status = status.and_then(|deployment| {
            let seen = deployment.status.as_ref()?.observed_generation?;
            (Some(seen) == deployment.metadata.generation).then_some(deployment.status?.replicas?)
        });
        let wanted = i32::try_from(AT_THE_END)?;
        if (u64::try_from(pods)?, status) == (AT_THE_END, Some(wanted)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{pods} pods, {status:?} replicas, not {AT_THE_END}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
