//! What a node works through: runtime, images, network, mounts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use coracle_telemetry::ErrorChain;
use rustls_pki_types::CertificateDer;

use crate::{
    AgentConfig, AgentError,
    admission::listening::Listeners,
    blocking::blocking,
    events::{EventRecorder, EventType},
    image::{ImageStore, ImageStoreConfig, registries::Registries},
    network::{
        PodNetwork,
        cni::{CniConfig, CniNetwork},
        places::{Places, PlacingNetwork},
        published::{PublishedPorts, TellingNetwork},
    },
    pod_manager::checkpoint,
    policy::{Attachment, Guard, GuardedNetwork, Heard, attachment},
    proxy::health::RulesView,
    runtime::{ImageService, LocalRuntime, OwnPods, RuntimeConfig, RuntimeService, runtime_root},
    volume::{Mounter, SystemMounter},
};

/// Foreign plugins are called once for each vanished sandbox.
const NETWORK_GC_LIMIT: Duration = Duration::from_secs(60);
/// In one event.
const LOST_PODS_NAMED: usize = 8;

/// What differs between a real node and one in a test.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) network: Arc<dyn PodNetwork>,
    pub(crate) cni: Option<CniNetwork>,
    pub(crate) mounter: Arc<dyn Mounter>,
    /// The CA whose clients may use the node's HTTPS API; without one there is no such API.
    pub(crate) client_ca: Option<CertificateDer<'static>>,
    /// Whether Service rules can be written.
    pub(crate) rules: RulesView,
    /// What says which pods have a place in the network; without it no policy is enforced.
    pub(crate) guarded: Option<Guarded>,
    /// What the pods publish on the node.
    pub(crate) published: PublishedPorts,
    /// Which addresses the pods have.
    pub(crate) places: Places,
    /// Who listens on the node.
    pub(crate) listeners: Listeners,
    /// Pods that ran without a record as the runtime started, and were ended.
    pub(crate) lost_pods: Vec<String>,
}

/// The pods that this node's network has and gets.
pub(crate) struct Guarded {
    pub(crate) heard: Heard,
    pub(crate) attached: Vec<Attachment>,
}

/// What a real node is made of.
pub(crate) async fn real_parts(
    config: &AgentConfig,
    client_ca: Option<CertificateDer<'static>>,
) -> Result<Parts, AgentError> {
    let registries = match &config.registries {
        Some(path) => Registries::load(path).map_err(|source| AgentError::Registries {
            source: Box::new(source),
        })?,
        None => Registries::default(),
    };
    let images = ImageStore::open(ImageStoreConfig {
        root_dir: config.agent_dir().join("images"),
        registries,
    })
    .map_err(|source| AgentError::Images { source })?;
    let cni = CniNetwork::new(CniConfig {
        conf_dir: config.cni_conf_dir.clone(),
        chain_dir: config.cni_chain_dir.clone(),
        plugin_dirs: config.cni_bin_dirs.clone(),
        state_dir: config.agent_dir().join("cni"),
        cluster_cidrs: config.cluster_cidr.into_iter().collect(),
        bridge: config.bridge.clone(),
        mtu: None,
        rules: config.proxy_mode,
        node_ip: Some(config.node_ip),
    });
    let (guard, heard) = Guard::new();
    let published = PublishedPorts::default();
    let places = Places::default();
    let placing = PlacingNetwork::new(cni.clone(), places.clone());
    let telling = TellingNetwork::new(placing, published.clone());
    let network: Arc<dyn PodNetwork> = Arc::new(GuardedNetwork::new(telling, guard));
    let shim_path = config.shim_path.clone();
    let shim_path = shim_path.map_or_else(|| beside_own_executable("coracle-shim"), Ok)?;
    let runtime = LocalRuntime::start(RuntimeConfig {
        run_dir: config.run_dir.clone(),
        root_dir: runtime_root(&config.agent_dir()),
        shim_path,
        network: Arc::clone(&network),
        images: Arc::clone(&images) as Arc<dyn ImageService>,
        own_pods: own_pods(config).await,
    })
    .await
    .map_err(|source| AgentError::Runtime { source })?;
    release_vanished(&runtime, &cni).await;
    let attached = runtime.attached().into_iter();
    let attached = attached.inspect(|(request, addresses)| {
        cni.know(request);
        published.add(request);
        places.add(request, addresses);
    });
    let attached = attached.map(|(request, addresses)| attachment(&request, &addresses));
    let guarded = Guarded {
        heard,
        attached: attached.collect(),
    };
    let (cni, mounter) = (Some(cni), Arc::new(SystemMounter));
    Ok(Parts {
        lost_pods: runtime.lost_pods().to_vec(),
        runtime,
        images,
        network,
        cni,
        mounter,
        client_ca,
        rules: RulesView::default(),
        guarded: Some(guarded),
        published,
        places,
        listeners: Listeners::default(),
    })
}

impl Parts {
    /// Pods that ran without a record do not go without a word.
    pub(crate) fn tell_of_lost_pods(&self, config: &AgentConfig, events: &EventRecorder) {
        if self.lost_pods.is_empty() {
            return;
        }
        let named = self.lost_pods.len().min(LOST_PODS_NAMED);
        let mut names = self.lost_pods[..named].join(", ");
        if self.lost_pods.len() > named {
            names.push_str(&format!(" and {} more", self.lost_pods.len() - named));
        }
        let message = format!(
            "run directory {} was removed or hidden under pods that ran: they were ended, and start again as their \
             restart policies say: {names}",
            config.run_dir.display()
        );
        events.node(EventType::Warning, "RunDirectoryLost", message);
    }
}

/// Pods that this node has had: each has had a directory for its volumes or its logs before
/// anything of it ran.
async fn own_pods(config: &AgentConfig) -> OwnPods {
    let (pods_dir, logs_dir) = (config.pods_dir(), config.logs_dir());
    let uids = blocking(move || {
        let logs = checkpoint::log_directories(&logs_dir).into_iter();
        logs.map(|logs| logs.uid)
            .chain(checkpoint::directories(&pods_dir))
            .collect()
    });
    OwnPods {
        cgroup_root: config.cgroup_root.clone(),
        uids: uids.await,
    }
}

/// Gives back what the last agent's sandboxes left in the network: addresses, links, published
/// ports. Once, before the first pod starts: what is attached later must not look vanished. A
/// failure costs addresses only; the next start tries again.
async fn release_vanished(runtime: &LocalRuntime, cni: &CniNetwork) {
    let known = runtime.known_sandboxes();
    match tokio::time::timeout(NETWORK_GC_LIMIT, cni.gc(&known)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = %ErrorChain(&error), "cannot release what vanished sandboxes held of the network")
        }
        Err(_) => {
            tracing::warn!("releasing what vanished sandboxes held of the network takes too long")
        }
    }
}

fn beside_own_executable(name: &str) -> Result<PathBuf, AgentError> {
    let own = std::env::current_exe().map_err(|source| AgentError::Directory {
        path: PathBuf::from("/proc/self/exe"),
        source,
    })?;
    Ok(own.with_file_name(name))
}
