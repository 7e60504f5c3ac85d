//! The plugins of each profile, by the `schedulerName` of the pods that they place.

use std::{collections::HashMap, sync::Arc};

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    config::SchedulerConfig,
    extender::HttpExtender,
    framework::{Extenders, Framework},
    plugins::{self, Parts},
    pod_info::{PodInfo, PodUid},
    storage::SharedStorage,
};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Profiles(Arc<All>);

#[derive(Debug)]
struct All {
    /// Of whom nobody else places, which does not happen.
    first: Arc<Framework>,
    by_name: HashMap<String, Arc<Framework>>,
}

impl Profiles {
    /// They bind with `client`, and wait for extenders until `stop`.
    pub(crate) fn new(
        config: &SchedulerConfig,
        client: &Client,
        storage: &Arc<SharedStorage>,
        stop: CancellationToken,
    ) -> Self {
        let extenders = config.extenders.iter();
        let extenders = extenders.map(|one| Box::new(HttpExtender::new(one.clone())) as _);
        let extenders = Arc::new(Extenders::new(extenders.collect(), stop));
        let parts = Parts {
            storage,
            client: Some(client),
        };
        let made = config.profiles.iter().map(|profile| {
            let framework = Framework {
                extenders: extenders.clone(),
                ..plugins::framework(profile, &parts)
            };
            (profile.name.clone(), Arc::new(framework))
        });
        let by_name: HashMap<_, _> = made.collect();
        let first = config.names().next().and_then(|name| by_name.get(name));
        let first = first.cloned().unwrap_or_default();
        Self(Arc::new(All { first, by_name }))
    }

    /// What decides about the pod.
    pub(crate) fn of(&self, pod: &PodInfo) -> &Arc<Framework> {
        let found = self.0.by_name.get(&**pod.scheduler_name);
        found.unwrap_or(&self.0.first)
    }

    /// A pod that may be waiting for its permission, whoever placed it, is not to be bound.
    pub(crate) fn reject_waiting_pod(&self, uid: &PodUid, reason: &'static str) {
        for framework in self.0.by_name.values() {
            framework.reject_waiting_pod(uid, reason);
        }
    }
}

/// One for all pods.
impl From<Arc<Framework>> for Profiles {
    fn from(framework: Arc<Framework>) -> Self {
        Self(Arc::new(All {
            first: framework,
            by_name: HashMap::new(),
        }))
    }
}
