//! Members that end, stand still, are alone or full: one clear sentence, nothing twice, nothing
//! lost.

use futures::StreamExt as _;

use super::*;

/// Writes `count` values, again where it was certainly not written, and reads where it is unknown.
/// Says how often that was.
async fn write_all(store: &dyn Backend, from: usize, count: usize) -> usize {
    let mut unsure = 0;
    for n in from..from + count {
        let deadline = tokio::time::Instant::now() + 3 * SOON;
        let (name, text) = (n.to_string(), n.to_string());
        loop {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{n} was not written"
            );
            match put(store, &name, &text).await {
                Ok(_) => break,
                Err(StoreError::Unsure { .. }) => {
                    unsure += 1;
                    let found = store.get(&format!("/registry/pods/ns/{name}")).await;
                    if matches!(found, Ok(Some(_))) {
                        break;
                    }
                }
                Err(StoreError::Unavailable { .. }) => {}
                Err(error) => panic!("{}", ErrorChain(&error)),
            }
        }
    }
    unsure
}

/// Follows from `start` until `count` keys were shown, by new watches where one ends. Every event
/// comes once and in order.
async fn follow(store: &dyn Backend, start: Revision, count: usize) -> usize {
    let (mut at, mut shown, mut watches) = (start, std::collections::BTreeSet::new(), 0);
    while shown.len() < count {
        let Ok(mut watch) = store.watch("/registry/", at).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        watches += 1;
        while let Some(Ok(batch)) = watch.next().await {
            for event in batch.events {
                assert!(
                    event.kv.mod_revision > at,
                    "{} after {at}",
                    event.kv.mod_revision
                );
                shown.insert(event.kv.key);
            }
            at = batch.revision;
            if shown.len() >= count {
                break;
            }
        }
    }
    watches
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_and_watchers_outlive_members() {
    const EACH: usize = 150;
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let store = open(&etcd).await;
    let start = store.current_revision().await.unwrap();
    let all = 4 * EACH;
    let work = async {
        let mut unsure = 0;
        for round in 0..4 {
            let member = round % 3;
            let writing = write_all(&store, round * EACH, EACH);
            let breaking = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if round % 2 == 0 {
                    etcd.kill(member);
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    etcd.run(member);
                } else {
                    etcd.pause(member);
                    tokio::time::sleep(Duration::from_secs(4)).await;
                    etcd.resume(member);
                }
                // It is a member again before the next one goes.
                tokio::time::sleep(Duration::from_secs(2)).await;
            };
            unsure += tokio::join!(writing, breaking).0;
        }
        unsure
    };
    let following = tokio::time::timeout(6 * SOON, follow(&store, start, all));
    let (unsure, watches) = tokio::join!(work, following);
    eprintln!(
        "{unsure} writes of {all} were unsure; {} watches",
        watches.unwrap()
    );
    for n in 0..all {
        assert_eq!(value(&store, &n.to_string()).await, Some(n.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_is_unsure_and_not_tried_again() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    put(&store, "a", "before").await.unwrap();
    etcd.pause(0);
    let error = put(&store, "a", "after").await.unwrap_err();
    assert!(matches!(error, StoreError::Unsure { .. }), "{error:?}");
    let said = ErrorChain(&error).to_string();
    eprintln!("{said}");
    assert!(said.contains("unknown whether this was written"), "{said}");
    assert!(store.failure().is_some());
    let read = store.get("/registry/pods/ns/a").await.unwrap_err();
    assert!(matches!(read, StoreError::Unavailable { .. }), "{read:?}");
    etcd.resume(0);
    let found = value(&store, "a").await.unwrap();
    assert!(found == "before" || found == "after", "{found}");
    put(&store, "a", "later").await.unwrap();
    assert_eq!(value(&store, "a").await.as_deref(), Some("later"));
    assert!(store.failure().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_says_so_and_writes_nothing() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let store = open(&etcd).await;
    put(&store, "a", "before").await.unwrap();
    etcd.kill(1);
    etcd.kill(2);
    let read = store.current_revision().await.unwrap_err();
    let read = ErrorChain(&read).to_string();
    eprintln!("{read}");
    // By now it is known that nobody leads.
    let error = put(&store, "a", "after").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    eprintln!("{}", ErrorChain(&error));
    etcd.run(1);
    let deadline = tokio::time::Instant::now() + SOON;
    while store.current_revision().await.is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "it does not come back"
        );
    }
    assert_eq!(value(&store, "a").await.as_deref(), Some("before"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_says_so_and_lets_delete() {
    let flags = [format!("--quota-backend-bytes={}", 4 << 20)];
    let Some(etcd) = Etcd::start_with(1, "http", &flags) else {
        return;
    };
    let store = open(&etcd).await;
    let large = "x".repeat(500_000);
    let mut written = 0;
    let error = loop {
        assert!(written < 50, "it did not fill");
        match put(&store, &written.to_string(), &large).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    let said = ErrorChain(&error).to_string();
    eprintln!("{said}");
    assert!(said.contains("alarm NOSPACE"), "{said}");
    // No failure: reads and deletions go on.
    assert!(store.failure().is_none());
    assert!(value(&store, "0").await.is_some());
    let delete = Txn {
        ops: vec![Op::Delete {
            key: "/registry/pods/ns/0".into(),
        }],
        ..Txn::default()
    };
    store.txn(delete).await.unwrap();
    assert_eq!(value(&store, "0").await, None);
    // Where it was the transaction itself that found no room, the alarm follows the answer.
    let alarmed = async {
        loop {
            let status = coracle_store_etcd::status::status(&etcd.config())
                .await
                .unwrap();
            if status.members[0].said.as_ref().unwrap().alarms == ["NOSPACE"] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), alarmed)
        .await
        .expect("the alarm NOSPACE is raised");
}

/// Etcd looks how large it is after a transaction, too: what it has just carried out then was one
/// too many, and so it says.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_etcd_has_no_room_for_is_not_there() {
    const AT_ONCE: usize = 8;
    let flags = [format!("--quota-backend-bytes={}", 4 << 20)];
    let Some(etcd) = Etcd::start_with(1, "http", &flags) else {
        return;
    };
    let store = open(&etcd).await;
    let large = "x".repeat(100_000);
    let (mut number, mut refused) = (0, 0);
    while refused == 0 {
        assert!(number < 400, "it did not fill");
        let names: Vec<String> = (number..number + AT_ONCE).map(|n| n.to_string()).collect();
        number += AT_ONCE;
        let puts = names.iter().map(|name| put(&store, name, &large));
        let answers = futures::future::join_all(puts).await;
        for (name, answer) in names.iter().zip(answers) {
            let is_there = value(&store, name).await.is_some();
            match answer {
                Ok(_) => assert!(is_there, "{name}"),
                Err(StoreError::Full { .. }) => {
                    refused += 1;
                    assert!(!is_there, "{name} was said not to be written");
                }
                Err(error) => panic!("{name}: {}", ErrorChain(&error)),
            }
        }
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status();
    assert!(copied.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_has_gone_back_closes_the_store() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let store = open(&etcd).await;
    write_all(&store, 0, 1).await;
    let backup = tempfile::tempdir().unwrap();
    etcd.kill(0);
    copy(&etcd.data(0), &backup.path().join("m0"));
    etcd.run(0);
    write_all(&store, 1, 20).await;
    assert_eq!(store.failure(), None);
    etcd.kill(0);
    std::fs::remove_dir_all(etcd.data(0)).unwrap();
    copy(&backup.path().join("m0"), &etcd.data(0));
    etcd.run(0);
    let asked = async {
        while store.current_revision().await.is_err() {}
        std::future::pending::<()>().await;
    };
    tokio::time::timeout(SOON, async {
        tokio::select! {
            () = store.closed() => {}
            () = asked => {}
        }
    })
    .await
    .unwrap();
    let why = store.failure().unwrap();
    eprintln!("{why}");
    assert!(why.contains("etcd has gone back from revision"), "{why}");
    let refused = put(&store, "a", "later").await.unwrap_err();
    assert!(matches!(refused, StoreError::Closed), "{refused:?}");
    // A new start takes it as it is.
    let store = open(&etcd).await;
    assert_eq!(value(&store, "0").await.as_deref(), Some("0"));
    assert_eq!(value(&store, "5").await, None);
    put(&store, "a", "later").await.unwrap();
}

#[tokio::test]
async fn a_write_too_large_for_etcd_is_refused() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    let error = put(&store, "a", &"x".repeat(3 << 20)).await.unwrap_err();
    assert!(matches!(error, StoreError::InvalidTxn { .. }), "{error:?}");
    assert!(error.to_string().contains("--max-request-bytes"), "{error}");
    assert_eq!(value(&store, "a").await, None);
}
