//! The servers that were known last, on the disk: a node that starts while the server it was told
//! of is down finds the others.
//!
//! Shape: `<agent>/servers.json`, mode 0600, `{"servers":["198.18.0.1:6443"]}`. One writer, the
//! keeper. What is not as it should be is told and left out: what was told by `--server` is enough
//! to begin with.

use std::{fs::File, io::Read as _, path::Path};

use coracle_telemetry::ErrorChain;
use coracle_trust::private_file;
use serde::{Deserialize, Serialize};

use super::{address::ServerAddress, servers::MOST};

/// More than it can be.
const BYTES_MOST: u64 = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct Known {
    servers: Vec<String>,
}

/// What is there. Blocks, for a moment.
pub(crate) fn load(path: &Path) -> Vec<ServerAddress> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MOST).read_to_end(&mut text));
    let known = match read {
        Ok(_) => serde_json::from_slice::<Known>(&text).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => Err(ErrorChain(&error).to_string()),
    };
    let known = known.unwrap_or_else(|why| {
        tracing::warn!(path = %path.display(), why, "cannot read which API servers there are");
        Known {
            servers: Vec::new(),
        }
    });
    let addresses = known.servers.iter().take(MOST).filter_map(|text| {
        let address = ServerAddress::of_text(text);
        if address.is_none() {
            tracing::warn!(path = %path.display(), ?text, "not the address of an API server");
        }
        address
    });
    addresses.collect()
}

/// Puts others there. Blocks.
pub(super) fn save(path: &Path, addresses: &[ServerAddress]) -> std::io::Result<()> {
    let known = Known {
        servers: addresses.iter().map(ToString::to_string).collect(),
    };
    private_file::write(path, &serde_json::to_vec(&known)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_kept_is_there_again_and_roots_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("servers.json");
        assert_eq!(load(&path), []);
        let address = |text: &str| ServerAddress::of_text(text).expect(text);
        for servers in [
            vec!["198.18.0.1:6443"],
            vec!["[fd00::1]:6443", "a.example:443"],
        ] {
            let servers: Vec<_> = servers.into_iter().map(address).collect();
            save(&path, &servers).expect("save");
            assert_eq!(load(&path), servers);
        }
        let mode = std::fs::metadata(&path).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn garbage_is_left_out() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("servers.json");
        let one = r#"{"servers":["","http://x","198.18.0.1:6443","198.18.0.1"]}"#;
        let many = format!(r#"{{"servers":["{}"]}}"#, "a:1\",\"".repeat(100_000));
        for (text, expected) in [
            ("", 0),
            ("\0\0\0", 0),
            ("[]", 0),
            (r#"{"servers":"198.18.0.1:6443"}"#, 0),
            (r#"{"servers":["198.18.0.1:6443""#, 0),
            (many.as_str(), 0),
            (one, 1),
        ] {
            std::fs::write(&path, text).expect("write");
            assert_eq!(load(&path).len(), expected, "{:.40}", text);
        }
        std::fs::remove_file(&path).expect("remove");
        std::fs::create_dir(&path).expect("directory");
        assert_eq!(load(&path), [], "a directory is no list");
    }
}
