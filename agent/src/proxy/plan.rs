//! What the proxy wants of the kernel, for whoever asks.

use std::collections::BTreeMap;

use coracle_netfilter::service::{ServiceKey, ServiceNetwork, ServiceView};

use super::{owned::Owned, turns};

/// The plan for Services.
#[derive(Debug, Clone)]
pub struct ServicePlan {
    /// What keeps the rules.
    pub engine: &'static str,
    /// The same for all of them.
    pub network: ServiceNetwork,
    /// Those that have rules.
    pub services: BTreeMap<ServiceKey, ServiceView>,
    /// Those whose rules in the kernel are others yet, and why.
    pub unwritten: BTreeMap<ServiceKey, String>,
    /// Those that have none, and why.
    pub without_rules: BTreeMap<ServiceKey, String>,
    /// Whether the last transaction failed.
    pub is_failing: bool,
}

impl ServicePlan {
    /// Of all Services, or why there is nothing to write for one.
    pub(super) fn new(
        owned: Owned,
        all: Vec<(ServiceKey, Result<ServiceView, &'static str>)>,
    ) -> Self {
        let mut external = owned.external;
        let mut plan = Self {
            engine: owned.engine,
            network: owned.network,
            services: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            without_rules: BTreeMap::new(),
            is_failing: owned.is_failing,
        };
        for (key, view) in all {
            let view = view.and_then(|view| match turns::is_too_large(&view) {
                true => Err("it has too many ports: its events say more"),
                false => Ok(view),
            });
            match view {
                Err(why) => {
                    plan.without_rules.insert(key, why.to_owned());
                }
                Ok(view) => {
                    // As it is now, without what was withheld when it was looked at last.
                    let withheld = external.remove(&key).map(|known| known.withheld);
                    let withheld = withheld.unwrap_or_else(|| view.withheld.clone());
                    plan.services.insert(key, ServiceView { withheld, ..view });
                }
            }
        }
        let waiting = owned.waiting.into_iter();
        let waiting = waiting.map(|key| (key, "it has changed, and its turn has not come"));
        let refused = owned.refused.into_iter();
        let refused = refused.map(|key| (key, "the kernel refuses them: its events say why"));
        let unwritten = waiting.chain(refused);
        plan.unwritten = unwritten.map(|(key, why)| (key, why.to_owned())).collect();
        plan
    }
}
