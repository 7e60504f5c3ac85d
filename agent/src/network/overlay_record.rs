//! What this node was told last of the overlay, one file: its link outlives the agent, and the next
//! one may begin while the server is away. Then pods and strangers are kept out of it all the same.

use std::{
    collections::BTreeSet,
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use coracle_netfilter::node::{Envelopes, Overlay};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

const NAME: &str = "overlay.json";

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pods: IpNet,
    port: u16,
    /// Earlier releases did not keep them.
    #[serde(default)]
    nodes: Option<BTreeSet<Ipv4Addr>>,
}

/// Why it cannot be remembered.
#[derive(Debug, thiserror::Error)]
#[error("remember in {path} who is kept from the overlay")]
pub(super) struct RecordError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Where it is.
#[derive(Debug)]
pub(super) struct OverlayRecord(PathBuf);

impl OverlayRecord {
    pub(super) fn in_dir(dir: &Path) -> Self {
        Self(dir.join(NAME))
    }

    /// That there is none is remembered by nothing: whoever does not know removes no rules.
    pub(super) fn load(&self) -> Overlay {
        let read = fs::read(&self.0).ok();
        let known = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        known.map_or(Overlay::Unknown, |Record { pods, port, nodes }| {
            Overlay::Port(Envelopes { pods, port, nodes })
        })
    }

    pub(super) fn store(&self, overlay: &Overlay) -> Result<(), RecordError> {
        let stored = match overlay {
            Overlay::Port(envelopes) => self.write(&Record {
                pods: envelopes.pods,
                port: envelopes.port,
                nodes: envelopes.nodes.clone(),
            }),
            Overlay::None | Overlay::Unknown => match fs::remove_file(&self.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        stored.map_err(|source| RecordError {
            path: self.0.clone(),
            source,
        })
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        if let Some(dir) = self.0.parent() {
            fs::create_dir_all(dir)?;
        }
        let unfinished = self.0.with_extension("tmp");
        fs::write(&unfinished, serde_json::to_vec(record)?)?;
        fs::rename(&unfinished, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_is_remembered_until_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let record = OverlayRecord::in_dir(&dir.path().join("cni"));
        assert_eq!(record.load(), Overlay::Unknown);
        record.store(&Overlay::None).unwrap();
        let overlay = |nodes: Option<[u8; 4]>| {
            Overlay::Port(Envelopes {
                pods: "10.244.0.0/16".parse().unwrap(),
                port: 8472,
                nodes: nodes.map(|node| [node.into()].into()),
            })
        };
        record.store(&overlay(Some([198, 18, 0, 2]))).unwrap();
        assert_eq!(record.load(), overlay(Some([198, 18, 0, 2])));
        // As an earlier release has written it.
        fs::write(&record.0, r#"{"pods":"10.244.0.0/16","port":8472}"#).unwrap();
        assert_eq!(record.load(), overlay(None));
        fs::write(&record.0, "{").unwrap();
        assert_eq!(record.load(), Overlay::Unknown);
        record.store(&Overlay::None).unwrap();
        assert!(!record.0.exists());
    }
}
