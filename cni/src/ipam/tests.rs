use std::{fs, path::Path, sync::Mutex};

use super::*;

fn conf(dir: &Path, subnet: &str) -> NetConf {
    let json = serde_json::json!({
        "cniVersion": "1.0.0", "name": "n", "type": "coracle-cni",
        "ipam": {"subnet": subnet, "dataDir": dir}
    });
    NetConf::parse(json.to_string().as_bytes()).unwrap()
}

fn owner(id: impl ToString) -> Owner {
    Owner {
        container_id: id.to_string(),
        ifname: "eth0".into(),
    }
}

#[test]
fn one_owner_keeps_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    let first = reserve(&conf, &owner("a")).unwrap();
    assert_eq!(reserve(&conf, &owner("a")).unwrap(), first);
    assert_ne!(reserve(&conf, &owner("b")).unwrap(), first);
}

#[test]
fn full_subnet_is_exhausted_until_one_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/29");
    for id in 0..5 {
        reserve(&conf, &owner(id)).unwrap();
    }
    assert_eq!(reserve(&conf, &owner("more")).unwrap_err().code(), 101);
    let freed = find(&conf, &owner(3)).unwrap().unwrap();
    release(&conf, &owner(3)).unwrap();
    assert_eq!(reserve(&conf, &owner("more")).unwrap(), freed);
}

#[test]
fn release_of_nothing_succeeds_and_makes_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    release(&conf, &owner("a")).unwrap();
    assert!(!conf.ipam.directory("n").exists());
}

#[test]
fn released_addresses_rest_until_the_others_were_used() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    let first = reserve(&conf, &owner("a")).unwrap();
    release(&conf, &owner("a")).unwrap();
    assert_ne!(reserve(&conf, &owner("b")).unwrap(), first);
}

#[test]
fn a_lost_hint_does_not_lose_the_reservation() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    let address = reserve(&conf, &owner("a")).unwrap();
    fs::remove_dir_all(conf.ipam.directory("n").join("owners")).unwrap();
    release(&conf, &owner("a")).unwrap();
    assert!(!conf.ipam.directory("n").join(address.to_string()).exists());
}

#[test]
fn gc_frees_everything_but_the_valid() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    let kept = reserve(&conf, &owner("kept")).unwrap();
    let gone = reserve(&conf, &owner("gone")).unwrap();
    // What a crash of the machine leaves of a reservation.
    let empty = conf.ipam.directory("n").join("10.1.0.99");
    fs::write(&empty, b"").unwrap();
    let freed = gc(&conf, &HashSet::from([owner("kept")])).unwrap();
    assert_eq!(freed, [gone, [10, 1, 0, 99].into()]);
    assert_eq!(find(&conf, &owner("kept")).unwrap(), Some(kept));
}

#[test]
fn a_call_killed_after_linking_does_not_spoil_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    let address = reserve(&conf, &owner("a")).unwrap();
    let directory = conf.ipam.directory("n");
    fs::hard_link(
        directory.join(address.to_string()),
        directory.join("unfinished"),
    )
    .unwrap();
    let other = reserve(&conf, &owner("b")).unwrap();
    assert_ne!(other, address);
    assert_eq!(find(&conf, &owner("a")).unwrap(), Some(address));
}

#[test]
fn concurrent_calls_never_share_an_address() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10.1.0.0/24");
    let all = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (conf, all) = (&conf, &all);
            scope.spawn(move || {
                for n in 0..25 {
                    let address = reserve(conf, &owner(format!("{worker}-{n}"))).unwrap();
                    assert!(all.lock().unwrap().insert(address), "{address} twice");
                }
            });
        }
    });
    assert_eq!(all.lock().unwrap().len(), 100);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

    /// Whatever the order of calls, nobody's address is somebody else's.
    #[test]
    fn any_order_of_calls_keeps_addresses_apart(steps in proptest::collection::vec((0_u8..3, 0_u8..8), 0..60)) {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(dir.path(), "10.1.0.0/29");
        let mut model: std::collections::HashMap<u8, Ipv4Addr> = std::collections::HashMap::new();
        for (step, id) in steps {
            match step {
                0 => match reserve(&conf, &owner(id)) {
                    Ok(address) => {
                        let known = model.insert(id, address);
                        proptest::prop_assert!(known.is_none_or(|known| known == address));
                        let holders = model.values().filter(|a| **a == address).count();
                        proptest::prop_assert_eq!(holders, 1);
                    }
                    Err(error) => {
                        proptest::prop_assert_eq!(error.code(), 101);
                        proptest::prop_assert_eq!(model.len(), 5);
                    }
                },
                1 => {
                    release(&conf, &owner(id)).unwrap();
                    model.remove(&id);
                }
                _ => {
                    model.retain(|known, _| known % 2 == 0);
                    gc(&conf, &model.keys().map(|id| owner(*id)).collect()).unwrap();
                }
            }
        }
    }
}
