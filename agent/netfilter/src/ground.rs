//! A network namespace of a test's own, with a real kernel's tables in it. Needs root; skips
//! visibly without, fails if `REQUIRE_ROOT` is set.

use std::{io::Write as _, path::PathBuf, process::Command};

use coracle_netns::{NetNs, unpin};

/// A namespace that is gone with the value.
struct Ground {
    path: PathBuf,
    ns: NetNs,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = unpin(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Runs a test in a namespace.
pub(crate) fn on_ground(name: &str, test: impl FnOnce() + Send) {
    if !nix::unistd::geteuid().is_root() {
        assert!(
            std::env::var_os("REQUIRE_ROOT").is_none(),
            "REQUIRE_ROOT is set and this is not root"
        );
        note("skipped: needs root");
        return;
    }
    let path = std::env::temp_dir().join(format!("nft-{}-{name}", std::process::id()));
    let ns = NetNs::create(&path).unwrap();
    let ground = Ground { path, ns };
    ground.ns.run(test).unwrap();
}

/// Into the test's output.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The program's output.
pub(crate) fn nft(script: &str) -> String {
    let words = script.split(' ');
    let output = Command::new("nft").args(words).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "nft {script}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
