//! Whom policies selected last, on the disk: rules that are removed while no agent runs are missed
//! before the API server has told what there is.
//!
//! Shape: `<run>/policies.json`, addresses in two lists. It never names a pod that the kernel does
//! not decide on, so that nobody is shut off for it: who goes is taken out before the kernel is
//! told, who comes is written after. One writer, the [`super::enforcer::Enforcer`].

use std::{collections::BTreeSet, fs, io, net::IpAddr, path::PathBuf};

use coracle_netfilter::policy::Selected;
use coracle_telemetry::ErrorChain;
use serde::{Deserialize, Serialize};

/// Where it is, and what is there.
#[derive(Debug)]
pub(super) struct SelectedFile {
    path: PathBuf,
    written: Selected,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    to: BTreeSet<IpAddr>,
    from: BTreeSet<IpAddr>,
}

impl SelectedFile {
    /// Reads what a predecessor has written; without a file, or if it cannot be read, nobody.
    pub(super) fn open(path: PathBuf) -> Self {
        let read = || -> io::Result<Wire> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
        let written = match read() {
            Ok(Wire { to, from }) => Selected { to, from },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Selected::default(),
            Err(error) => {
                tracing::warn!(path = %path.display(), error = %ErrorChain(&error), "whom NetworkPolicies selected last cannot be read: rules that were removed meanwhile are not missed");
                Selected::default()
            }
        };
        Self { path, written }
    }

    /// Those of them that are still there.
    pub(super) fn among(&self, attached: &BTreeSet<IpAddr>) -> Selected {
        let still = |all: &BTreeSet<IpAddr>| all & attached;
        Selected {
            to: still(&self.written.to),
            from: still(&self.written.from),
        }
    }

    /// Before the kernel is told: those who are not in `now` go.
    pub(super) fn take_out(&mut self, now: &Selected) {
        let left = Selected {
            to: &self.written.to & &now.to,
            from: &self.written.from & &now.from,
        };
        self.write(left);
    }

    /// After the kernel was told.
    pub(super) fn write(&mut self, now: Selected) {
        if now == self.written {
            return;
        }
        let wire = Wire {
            to: now.to.clone(),
            from: now.from.clone(),
        };
        let unfinished = self.path.with_extension("tmp");
        let write = || -> io::Result<()> {
            fs::write(&unfinished, serde_json::to_vec(&wire)?)?;
            fs::rename(&unfinished, &self.path)
        };
        // No flush to the disk: what a machine forgets, its pods do not outlive.
        match write() {
            Ok(()) => self.written = now,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), error = %ErrorChain(&error), "cannot remember whom NetworkPolicies select: tried again with the next change");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(to: &[u8], from: &[u8]) -> Selected {
        let all = |lasts: &[u8]| lasts.iter().map(|last| [10, 1, 0, *last].into()).collect();
        Selected {
            to: all(to),
            from: all(from),
        }
    }

    #[test]
    fn whom_the_kernel_may_not_decide_on_is_not_remembered() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("policies.json");
        let mut file = SelectedFile::open(path.clone());
        let all = selected(&[1, 2, 3, 4], &[1, 2, 3, 4]).to;
        file.write(selected(&[1, 2], &[2]));
        let again = || SelectedFile::open(path.clone()).among(&all);
        assert_eq!(again(), selected(&[1, 2], &[2]));
        // 3 comes and 1 goes: in between neither is told of.
        let next = selected(&[2, 3], &[2]);
        file.take_out(&next);
        assert_eq!(again(), selected(&[2], &[2]));
        file.write(next);
        assert_eq!(again(), selected(&[2, 3], &[2]));
        // Who is not attached any more is nobody to shut off.
        let attached = selected(&[3], &[]).to;
        assert_eq!(
            SelectedFile::open(path.clone()).among(&attached),
            selected(&[3], &[])
        );
        fs::write(&path, "{").expect("written");
        assert_eq!(again(), Selected::default());
    }
}
