//! A proxy that can be asked for its plan.

use std::sync::mpsc;

use coracle_agent::proxy::{self, ProxyConfig, ServicePlan, Sources};

use super::{Node, Running, runtime};

impl Node {
    /// Runs the proxy until the value is dropped, and asks it through what comes with it.
    pub(crate) fn proxy_to_ask(&self, config: ProxyConfig) -> (Running, Sources) {
        let (sender, sources) = mpsc::channel();
        let running = self.spawn(move |mut informers, shutdown| {
            let sources = Sources::new(&mut informers);
            sender.send(sources.clone()).unwrap();
            (informers, async move {
                proxy::run(sources, config, shutdown).await.unwrap()
            })
        });
        (running, sources.recv().unwrap())
    }
}

/// What the proxy says.
pub(crate) fn plan(sources: &Sources) -> ServicePlan {
    runtime().block_on(sources.plan()).unwrap()
}
