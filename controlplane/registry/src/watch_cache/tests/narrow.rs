//! Watchers of a little: what they see, and that others' events cost them nothing.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::*;

fn on_node(node: &str) -> Selection {
    let wanted = node.to_owned();
    everything()
        .filter(Arc::new(move |entry| {
            entry.field("spec.nodeName") == Some(&*wanted)
        }))
        .requires_field("spec.nodeName", node)
}

fn one(key: &str) -> Selection {
    Selection::of(KeyScope::Key(pod_key(key)))
}

/// The same objects by a filter alone: everybody's events are looked through.
fn by_filter(selection: &Selection) -> Selection {
    let selection = selection.clone();
    everything().filter(Arc::new(move |entry| selection.selects(entry)))
}

/// All that is there, as `TYPE name@revision`.
fn ready(watcher: &mut Watcher) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let next = watcher.ready().unwrap();
        if next.is_empty() {
            return seen;
        }
        seen.extend(next.iter().map(shown));
    }
}

#[tokio::test]
async fn only_events_of_its_own_are_queued_for_a_group() {
    let limits = WatchCacheLimits {
        ring_events: 8,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    let selections = [on_node("n1"), one("ns/a"), namespace("quiet")];
    let mut watchers =
        selections.map(|selection| cluster.pods.watch(selection, Revision(0)).unwrap());
    for n in 0..20 {
        cluster.pod("ns/b", &n.to_string(), "n2").await;
    }
    assert_eq!(cluster.pods.queued(), (0, 8));
    assert!(watchers.iter().all(|watcher| !watcher.has_news()));
    // Two groups' own.
    cluster.pod("ns/a", "web", "n1").await;
    assert_eq!(cluster.pods.queued(), (2, 8));
    let news = watchers.each_ref().map(Watcher::has_news);
    assert_eq!(news, [true, true, false]);
    let seen = watchers.each_mut().map(ready);
    assert_eq!(seen, [vec!["ADDED a@21"], vec!["ADDED a@21"], vec![]]);
    // No more than the ring has.
    for n in 0..20 {
        cluster.pod("ns/a", &n.to_string(), "n1").await;
    }
    assert_eq!(cluster.pods.queued(), (16, 8));
    for n in 0..20 {
        cluster.pod("ns/b", &n.to_string(), "n2").await;
    }
    assert_eq!(cluster.pods.queued(), (0, 8));
    assert!(matches!(watchers[0].ready(), Err(WatchCacheError::TooSlow)));
    assert_eq!(watchers[2].progress(), Some(cluster.cache.revision()));
}

#[tokio::test]
async fn an_object_that_moves_goes_from_one_watcher_to_the_other() {
    let cluster = Cluster::start().await;
    let mut watchers =
        ["n1", "n2", ""].map(|node| cluster.pods.watch(on_node(node), Revision(0)).unwrap());
    for node in ["", "n1", "n1", "n2", "n1"] {
        cluster.pod("ns/a", "web", node).await;
    }
    cluster.delete("ns/a").await;
    let seen = watchers.each_mut().map(ready);
    assert_eq!(
        seen,
        [
            vec![
                "ADDED a@2",
                "MODIFIED a@3",
                "DELETED a@4",
                "ADDED a@5",
                "DELETED a@6"
            ],
            vec!["ADDED a@4", "DELETED a@5"],
            vec!["ADDED a@1", "DELETED a@2"],
        ]
    );
}

#[tokio::test]
async fn queues_say_what_a_look_at_every_event_says() {
    let cluster = Cluster::start().await;
    let mut random = StdRng::seed_from_u64(7);
    let selections = [
        on_node("n1"),
        on_node(""),
        one("a/p1"),
        namespace("b"),
        Selection {
            scope: KeyScope::Namespace("a".to_owned()),
            ..on_node("n2")
        },
    ];
    // From revisions before and after the groups are there; some leave, others come.
    let mut following: Vec<(Watcher, Watcher)> = Vec::new();
    for _ in 0..300 {
        let mut ops = Vec::new();
        for name in 0..3 {
            let key = format!("{}/p{name}", ["a", "b"][random.random_range(0..2)]);
            ops.push(match random.random_range(0..5) {
                0 => Op::Delete {
                    key: pod_key(&key).into(),
                },
                n => put_pod(&key, "web", ["", "n1", "n2", "n3"][n - 1]),
            });
        }
        let revision = cluster.write(ops).await;
        if random.random_range(0..3) == 0 {
            let from = Revision(random.random_range(0..=revision.0));
            let selection = &selections[random.random_range(0..selections.len())];
            let watch = |selection| cluster.pods.watch(selection, from).unwrap();
            following.push((watch(selection.clone()), watch(by_filter(selection))));
        }
        if following.len() > 20 {
            let gone = random.random_range(0..following.len());
            let (mut narrow, mut wide) = following.swap_remove(gone);
            assert_eq!(ready(&mut narrow), ready(&mut wide));
            assert_eq!(narrow.progress(), Some(revision));
        }
    }
    for (mut narrow, mut wide) in following {
        assert_eq!(narrow.progress(), wide.progress());
        assert_eq!(ready(&mut narrow), ready(&mut wide));
    }
    assert_eq!(cluster.pods.narrow_groups(), 0);
}

#[tokio::test]
async fn a_group_that_is_there_learns_what_was_before_it() {
    let cluster = Cluster::start().await;
    for n in 0..10 {
        cluster
            .pod(&format!("ns/p{n}"), "web", ["n1", "n2"][n % 2])
            .await;
    }
    let first = cluster.pods.watch(on_node("n1"), Revision(8)).unwrap();
    assert_eq!(cluster.pods.queued().0, 1);
    let mut second = cluster.pods.watch(on_node("n1"), Revision(3)).unwrap();
    assert_eq!(
        ready(&mut second),
        ["ADDED p4@5", "ADDED p6@7", "ADDED p8@9"]
    );
    drop(first);
    cluster.pod("ns/p8", "web", "n3").await;
    assert_eq!(ready(&mut second), ["DELETED p8@11"]);
}

#[tokio::test]
async fn a_namespace_is_narrower_than_a_field_that_lists_do_not_go_by() {
    let cluster = Cluster::start().await;
    let index = cluster.pods.config().index.as_ref();
    let in_a = |field: &'static str| Selection {
        scope: KeyScope::Namespace("a".to_owned()),
        ..everything().requires_field(field, "x")
    };
    let of = |selection| groups::Narrow::of(&selection, index);
    let namespace = groups::Narrow::Namespace("a".into());
    let field = groups::Narrow::Field(0, "x".into());
    assert_eq!(of(in_a("spec.nodeName")), Some(field.clone()));
    assert_eq!(of(in_a("status.phase")), Some(namespace));
    assert_eq!(
        of(everything()
            .requires_field("status.phase", "y")
            .requires_field("spec.nodeName", "x")),
        Some(field)
    );
    assert_eq!(of(everything()), None);
}
