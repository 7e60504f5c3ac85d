//! A network namespace of a test's own, with a real kernel's tables in it. Needs root; skips
//! visibly without, fails if `REQUIRE_ROOT` is set.

use std::{io::Write as _, process::Command};

use coracle_ground::is_root_or_skip;
use coracle_netns::{NetNs, unpin};

/// Runs a test in a namespace.
pub(crate) fn on_ground(name: &str, test: impl FnOnce() + Send) {
    if !is_root_or_skip() {
        return;
    }
    let path = std::env::temp_dir().join(format!("nft-{}-{name}", std::process::id()));
    let ns = NetNs::create(&path).unwrap();
    // Open, it stays; and it is gone with this process, however that ends.
    unpin(&path).unwrap();
    ns.run(test).unwrap();
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
