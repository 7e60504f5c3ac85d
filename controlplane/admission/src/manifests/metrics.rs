//! What is counted of files that are read anew, under upstream's names.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/manifest/metrics/metrics.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

/// Figures, for the server to show.
#[derive(Debug, Clone, Default)]
pub struct ManifestMetrics {
    /// `apiserver_manifest_admission_config_controller_automatic_reloads_total`
    pub reloads: Family<Reload, Counter>,
    /// `apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds`
    pub last: Family<Reload, Gauge>,
    /// `apiserver_manifest_admission_config_controller_last_config_info`
    pub info: Family<Info, Gauge>,
    /// What is shown of each plugin.
    shown: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reload {
    status: &'static str,
    plugin: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Info {
    plugin: &'static str,
    hash: String,
}

impl ManifestMetrics {
    pub(super) fn failed(&self, plugin: &'static str) {
        self.count("failure", plugin);
    }

    /// The files with this hash are taken.
    pub(super) fn taken(&self, plugin: &'static str, hash: &str) {
        self.count("success", plugin);
        let mut shown = self.shown.lock();
        if let Some(before) = shown.insert(plugin, hash.to_owned()) {
            self.info.remove(&Info {
                plugin,
                hash: before,
            });
        }
        let hash = hash.to_owned();
        self.info.get_or_create(&Info { plugin, hash }).set(1);
    }

    fn count(&self, status: &'static str, plugin: &'static str) {
        let labels = Reload { status, plugin };
        self.reloads.get_or_create(&labels).inc();
        let now = Timestamp::now().as_second();
        self.last.get_or_create(&labels).set(now);
    }
}
