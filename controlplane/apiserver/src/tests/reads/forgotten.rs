//! States that the cache has forgotten, and the store, too.

use std::sync::Arc;

use coracle_store::{Backend, Revision, memory::MemoryBackend};

use super::*;

#[tokio::test]
async fn forgotten_states_are_gone_and_a_token_goes_on_inconsistently() {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let server = testing::server_over(Arc::clone(&backend)).await;
    let raw = Raw::of(&server, UserInfo::master("test"));
    for name in ["a", "b", "c"] {
        raw.post(CONFIG_MAPS, config_map(name)).await;
    }
    let (_, all) = raw.get(CONFIG_MAPS).await;
    let then = version(&all);
    for round in 0..MORE_THAN_REMEMBERED {
        if round + 1 == MORE_THAN_REMEMBERED {
            grow_old().await;
        }
        raw.merge(
            &format!("{CONFIG_MAPS}/c"),
            json!({"data": {"n": round.to_string()}}),
        )
        .await;
    }
    let exact = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (code, status) = raw.get(&exact).await;
    assert_eq!(
        (code, &status["reason"]),
        (410, &json!("Expired")),
        "{status}"
    );
    // As of a list that was begun then, and whose state the cache has not kept: the store has it,
    // until it is compacted.
    let token =
        crate::list_options::Token::new(i64::try_from(then).unwrap(), "default/a", None).encode();
    let goes_on = format!("{CONFIG_MAPS}?limit=1&continue={token}");
    let (code, rest) = raw.get(&goes_on).await;
    assert_eq!((code, names(&rest)), (200, vec!["b"]), "{rest}");
    assert_eq!(version(&rest), then);
    assert_eq!(rest["metadata"]["remainingItemCount"], 1, "{rest}");
    backend.compact(Revision(then + 1)).await.unwrap();
    let (code, status) = raw.get(&goes_on).await;
    assert_eq!(
        (code, &status["reason"]),
        (410, &json!("Expired")),
        "{status}"
    );
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("inconsistent list"),
        "{status}"
    );
    let token = status["metadata"]["continue"].as_str().unwrap();
    raw.delete(&format!("{CONFIG_MAPS}/b"), json!({})).await;
    let (code, rest) = raw
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!((code, names(&rest)), (200, vec!["c"]));
    assert!(version(&rest) > then);
}
