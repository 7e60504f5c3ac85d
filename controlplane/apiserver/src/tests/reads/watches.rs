//! Where a watch begins, and how it ends.

use super::*;

#[tokio::test]
async fn watch_begins_where_its_version_says() {
    let (raw, then) = history().await;
    let synthetic = ["ADDED a 1", "ADDED b 0"];
    let replayed = ["ADDED b 0", "MODIFIED a 1"];
    let not_older = "resourceVersionMatch=NotOlderThan";
    let bookmarks = "allowWatchBookmarks=true";
    for (query, expect) in [
        (String::new(), vec![synthetic[0], synthetic[1]]),
        (
            "resourceVersion=0".to_owned(),
            vec![synthetic[0], synthetic[1]],
        ),
        (
            format!("resourceVersion={then}"),
            vec![replayed[0], replayed[1]],
        ),
        (
            format!("sendInitialEvents=true&{not_older}&{bookmarks}"),
            vec![synthetic[0], synthetic[1], "BOOKMARK"],
        ),
        (
            format!("sendInitialEvents=true&{not_older}&{bookmarks}&resourceVersion=0"),
            vec![synthetic[0], synthetic[1], "BOOKMARK"],
        ),
        (
            format!("sendInitialEvents=true&{not_older}&{bookmarks}&resourceVersion={then}"),
            vec![synthetic[0], synthetic[1], "BOOKMARK"],
        ),
        (
            format!("sendInitialEvents=true&{not_older}"),
            vec![synthetic[0], synthetic[1]],
        ),
        (
            format!("sendInitialEvents=false&{not_older}&resourceVersion={then}"),
            vec![replayed[0], replayed[1]],
        ),
        (format!("sendInitialEvents=false&{not_older}"), vec![]),
    ] {
        let mut events = Events::at(&raw, &format!("{CONFIG_MAPS}?watch=true&{query}")).await;
        // What comes after all that is there already.
        raw.post(CONFIG_MAPS, config_map("last")).await;
        let mut seen = Vec::new();
        loop {
            let event = events.next().await.unwrap();
            let object = &event["object"];
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if name == "last" {
                break;
            }
            let text = format!(
                "{} {name} {}",
                event["type"].as_str().unwrap(),
                object["data"]["n"].as_str().unwrap_or_default()
            );
            seen.push(text.trim().to_owned());
        }
        assert_eq!(seen, expect, "{query}");
        raw.delete(&format!("{CONFIG_MAPS}/last"), json!({})).await;
    }
}

#[tokio::test]
async fn one_object_can_be_watched_in_three_ways() {
    let (raw, then) = history().await;
    for path in [
        format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Da&resourceVersion={then}"),
        format!("/api/v1/watch/namespaces/default/configmaps/a?resourceVersion={then}"),
        format!(
            "/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Da&resourceVersion={then}"
        ),
    ] {
        let mut events = Events::at(&raw, &path).await;
        raw.merge(&format!("{CONFIG_MAPS}/b"), json!({"data": {"n": path}}))
            .await;
        raw.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"n": path}}))
            .await;
        events.expect("MODIFIED", "a").await;
        let mut last = events.expect("MODIFIED", "a").await;
        while last["object"]["data"]["n"] != path.as_str() {
            last = events.expect("MODIFIED", "a").await;
        }
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off_without_a_gap() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let mut events = Events::at(&raw, &format!("{CONFIG_MAPS}?watch=true")).await;
    events.expect("ADDED", "x").await;
    for round in 1..=MORE_THAN_REMEMBERED {
        if round == MORE_THAN_REMEMBERED {
            grow_old().await;
        }
        raw.merge(
            &format!("{CONFIG_MAPS}/x"),
            json!({"data": {"n": round.to_string()}}),
        )
        .await;
    }
    // It may have what was sent before it was cut off, in order; then the stream ends.
    let mut expect = 1;
    while let Some(event) = events.next().await {
        assert_eq!(event["object"]["data"]["n"], expect.to_string());
        expect += 1;
    }
    assert!(expect < MORE_THAN_REMEMBERED, "{expect}");
}
