//! What kube-proxy sets of the table of connections. Nothing that somebody has set further.
//!
//! Source: `setupConntrack` in kubernetes `cmd/kube-proxy/app/server_linux.go`, defaults in
//! `pkg/proxy/apis/config/v1alpha1/defaults.go`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

const DIRECTORY: &str = "/proc/sys/net/netfilter";
/// Connections for each processor, and at least.
const OF_A_PROCESSOR: u64 = 32_768;
const LEAST: u64 = 131_072;
/// Seconds after which an established connection that says nothing is forgotten, and one of which
/// one end has said its last.
const ESTABLISHED: u64 = 86_400;
const CLOSE_WAIT: u64 = 3_600;

/// A setting, and what becomes of its value.
type Wanted = (&'static str, fn(u64) -> u64);

const WANTED: [Wanted; 3] = [
    ("nf_conntrack_max", |is| match is {
        // No bound.
        0 => 0,
        is => is.max(most()),
    }),
    ("nf_conntrack_tcp_timeout_established", |is| {
        is.min(ESTABLISHED)
    }),
    ("nf_conntrack_tcp_timeout_close_wait", |is| {
        is.max(CLOSE_WAIT)
    }),
];

fn most() -> u64 {
    let processors = available_parallelism().map_or(1, usize::from);
    let of_all = OF_A_PROCESSOR.saturating_mul(u64::try_from(processors).unwrap_or(u64::MAX));
    of_all.max(LEAST)
}

/// Sets what can be set. Blocks.
pub(super) fn ensure() {
    for (path, error) in ensure_in(Path::new(DIRECTORY)) {
        // Of another machine's namespace, or of a kernel that follows nothing yet.
        tracing::debug!(path = %path.display(), %error, "a setting of the table of connections stays as it is");
    }
}

fn ensure_in(directory: &Path) -> Vec<(PathBuf, io::Error)> {
    let set = |(name, wanted): &Wanted| {
        let path = directory.join(name);
        let change = || {
            let is: u64 = fs::read_to_string(&path)?
                .trim()
                .parse()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            match wanted(is) {
                wanted if wanted == is => Ok(()),
                wanted => fs::write(&path, wanted.to_string()),
            }
        };
        change().err().map(|error| (path.clone(), error))
    };
    WANTED.iter().filter_map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_as_far_as_kube_proxys_and_what_is_further_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = |values: [&str; 3]| {
            for ((name, _), value) in WANTED.iter().zip(values) {
                fs::write(dir.path().join(name), format!("{value}\n")).expect("written");
            }
            assert!(ensure_in(dir.path()).is_empty());
            WANTED.map(|(name, _)| {
                let is = fs::read_to_string(dir.path().join(name)).expect("read");
                is.trim().to_owned()
            })
        };
        let of_kernel = ["65536", "432000", "60"];
        assert_eq!(run(of_kernel), [&*most().to_string(), "86400", "3600"]);
        let further = ["99000000", "600", "7200"];
        assert_eq!(run(further), further);
        assert_eq!(run(["0", "86400", "3600"])[0], "0");
        assert!(most() >= LEAST);
        let missing = ensure_in(&dir.path().join("nothing"));
        assert_eq!(missing.len(), WANTED.len());
    }
}
