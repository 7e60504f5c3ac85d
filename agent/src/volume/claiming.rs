//! How a pod gets the volume that its claim stands for: found on record, or looked up, checked, put
//! on record, and then made.
//!
//! Source: `GenerateMountVolumeFunc` in
//! `pkg/volume/util/operationexecutor/operation_generator.go` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_api::{scheduling::NodeView as Labelled, volume::node_affinity_matches};
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::{
    Missing, MountedVolume, VolumeManager,
    claim::{Reference, record::Record},
    error::VolumePluginError,
    layout,
    plugin::{SetUp, Source, VolumePlugin},
    set_up,
};
use crate::{
    blocking::blocking,
    config::AgentConfig,
    node::{NodeView, status},
    pod::PodExt,
    runtime::types::PodUid,
};

/// What is known of the node that volumes are reached from.
pub(super) struct Place {
    pub(super) config: AgentConfig,
    pub(super) view: NodeView,
}

impl VolumeManager {
    /// What the pod has by a claim, or will have: what it has is not asked for again.
    pub(super) async fn claimed(
        &self,
        pod: &Pod,
        volume: &Volume,
        reference: &Reference,
    ) -> Result<Record, Missing> {
        let (records, uid, name) = (self.records.clone(), pod.uid(), reference.name.clone());
        let known = blocking(move || records.find(&uid, &name)).await;
        if let Some(record) = known.filter(|record| record.claimed.ready) {
            return Ok(record);
        }
        let claimed = self.claims.resolve(pod, volume, reference).await;
        let claimed = claimed.map_err(Missing::Claim)?;
        let plugin = self.plugin(Source::Persistent(&claimed));
        let name = plugin.map_or(layout::LOCAL, VolumePlugin::name);
        Ok(Record {
            dir: self.dir(&pod.uid(), name, claimed.name()),
            claimed,
        })
    }

    pub(super) async fn ensure_claimed(
        &self,
        pod: &Pod,
        record: Record,
        reference: &Reference,
        max_age: Duration,
    ) -> Result<MountedVolume, VolumePluginError> {
        let claimed = &record.claimed;
        let plugin = self.plugin(Source::Persistent(claimed))?;
        if !claimed.ready {
            if !self.place.reaches(&record) {
                return Err(VolumePluginError::Elsewhere);
            }
            self.take(&pod.uid(), &record).await?;
        }
        let wanted = SetUp {
            pod,
            source: Source::Persistent(claimed),
            read_only: reference.read_only,
            dir: &record.dir,
            max_age,
        };
        let path = set_up(plugin, &wanted).await?;
        let mounted = MountedVolume {
            path,
            read_only: reference.read_only,
            group: claimed.group(),
        };
        if !claimed.ready {
            blocking(move || {
                let written = record.set_ready();
                written.map_err(VolumePluginError::io("write the record of", &record.dir))
            })
            .await?;
        }
        Ok(mounted)
    }

    /// Writes down that the pod has the volume, unless another one has it for itself.
    async fn take(&self, uid: &PodUid, record: &Record) -> Result<(), VolumePluginError> {
        let (records, uid, record) = (self.records.clone(), uid.clone(), record.clone());
        let taking = Arc::clone(&self.taking);
        blocking(move || {
            let _taking = taking.lock();
            let failed = |what| VolumePluginError::io(what, &record.dir);
            let (claimed, dir) = (&record.claimed, "look who else has");
            if claimed.is_for_one_pod()
                && !records
                    .holders(&claimed.volume, Some(&uid))
                    .map_err(failed(dir))?
                    .is_empty()
            {
                return Err(VolumePluginError::InUse);
            }
            // It may be ready by now: work that nobody waited for goes on.
            if record.written().is_some() {
                return Ok(());
            }
            record.write().map_err(failed("write the record of"))
        })
        .await
    }
}

impl Place {
    /// Whether a volume can be used from here.
    fn reaches(&self, record: &Record) -> bool {
        let known = self.view.lock().clone();
        let labels = known.and_then(|node| node.metadata.labels.clone());
        let mut labels = labels.unwrap_or_default();
        for (key, value) in status::labels(&self.config) {
            labels.entry(key).or_insert(value);
        }
        let node = Labelled {
            name: &self.config.node_name,
            labels: &labels,
        };
        node_affinity_matches(&record.claimed.volume, node)
    }
}
