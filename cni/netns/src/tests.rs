use coracle_ground::{Ground, is_root_or_skip};

use super::*;

#[test]
fn run_is_inside_and_caller_stays_outside() {
    if !is_root_or_skip() {
        return;
    }
    let dir = Ground::named("run");
    let before = NetNs::current().unwrap().identity().unwrap();
    let ns = NetNs::create(&dir.path().join("a")).unwrap();
    let inside = ns
        .run(|| NetNs::current().unwrap().identity().unwrap())
        .unwrap();
    assert_eq!(inside, ns.identity().unwrap());
    assert_ne!(inside, before);
    assert_eq!(NetNs::current().unwrap().identity().unwrap(), before);
}

#[test]
fn pins_are_the_same_namespace_and_outlive_the_value() {
    if !is_root_or_skip() {
        return;
    }
    let dir = Ground::named("pin");
    let ns = NetNs::create(&dir.path().join("a")).unwrap();
    ns.pin(&dir.path().join("b")).unwrap();
    let identity = ns.identity().unwrap();
    drop(ns);
    unpin(&dir.path().join("a")).unwrap();
    assert_eq!(
        NetNs::open(&dir.path().join("b"))
            .unwrap()
            .identity()
            .unwrap(),
        identity
    );
}

#[test]
fn unpin_is_idempotent_and_gone_is_recognized() {
    if !is_root_or_skip() {
        return;
    }
    let dir = Ground::named("gone");
    let path = dir.path().join("a");
    NetNs::create(&path).unwrap();
    unpin(&path).unwrap();
    unpin(&path).unwrap();
    assert!(NetNs::open(&path).unwrap_err().is_gone());
    std::fs::write(&path, b"").unwrap();
    assert!(NetNs::open(&path).unwrap_err().is_gone());
}

#[test]
fn a_panic_inside_reaches_the_caller() {
    if !is_root_or_skip() {
        return;
    }
    let dir = Ground::named("panic");
    let ns = NetNs::create(&dir.path().join("a")).unwrap();
    let caught = std::panic::catch_unwind(|| ns.run(|| panic!("inside")));
    assert!(caught.is_err());
}
