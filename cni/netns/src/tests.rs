use super::*;

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    assert!(
        root || std::env::var_os("REQUIRE_ROOT").is_none(),
        "REQUIRE_ROOT is set and this is not root"
    );
    if !root {
        // Visible in the test's output.
        writeln(io::stderr());
    }
    root
}

fn writeln(mut to: impl io::Write) {
    let _ = to.write_all(b"skipped: needs root\n");
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ct-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary directory");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = unpin(&entry.path());
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn run_is_inside_and_caller_stays_outside() {
    if !root() {
        return;
    }
    let dir = Dir::new("run");
    let before = NetNs::current().unwrap().identity().unwrap();
    let ns = NetNs::create(&dir.0.join("a")).unwrap();
    let inside = ns
        .run(|| NetNs::current().unwrap().identity().unwrap())
        .unwrap();
    assert_eq!(inside, ns.identity().unwrap());
    assert_ne!(inside, before);
    assert_eq!(NetNs::current().unwrap().identity().unwrap(), before);
}

#[test]
fn pins_are_the_same_namespace_and_outlive_the_value() {
    if !root() {
        return;
    }
    let dir = Dir::new("pin");
    let ns = NetNs::create(&dir.0.join("a")).unwrap();
    ns.pin(&dir.0.join("b")).unwrap();
    let identity = ns.identity().unwrap();
    drop(ns);
    unpin(&dir.0.join("a")).unwrap();
    assert_eq!(
        NetNs::open(&dir.0.join("b")).unwrap().identity().unwrap(),
        identity
    );
}

#[test]
fn unpin_is_idempotent_and_gone_is_recognized() {
    if !root() {
        return;
    }
    let dir = Dir::new("gone");
    let path = dir.0.join("a");
    NetNs::create(&path).unwrap();
    unpin(&path).unwrap();
    unpin(&path).unwrap();
    assert!(NetNs::open(&path).unwrap_err().is_gone());
    std::fs::write(&path, b"").unwrap();
    assert!(NetNs::open(&path).unwrap_err().is_gone());
}

#[test]
fn a_panic_inside_reaches_the_caller() {
    if !root() {
        return;
    }
    let dir = Dir::new("panic");
    let ns = NetNs::create(&dir.0.join("a")).unwrap();
    let caught = std::panic::catch_unwind(|| ns.run(|| panic!("inside")));
    assert!(caught.is_err());
}
