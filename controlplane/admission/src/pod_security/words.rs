//! What upstream's sentences about pods are put together from.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod::Pod;

/// `one` of one, `many` of more.
pub(super) fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let quoted = |name: T| format!("\"{}\"", name.as_ref());
    let all: Vec<String> = names.into_iter().map(quoted).collect();
    all.join(", ")
}

/// The names of the containers that are `bad`.
pub(super) fn bad_containers<'a>(
    pod: Pod<'a>,
    mut bad: impl FnMut(&'a Value) -> bool,
) -> Vec<&'a str> {
    let bad = pod.containers().filter(|container| bad(container));
    bad.map(|container| container["name"].as_str().unwrap_or_default())
        .collect()
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn containers<T: AsRef<str>>(names: &[T]) -> String {
    let noun = plural(names.len(), "container", "containers");
    format!("{noun} {}", quoted(names))
}

/// Who sets what it may not: the pod, containers of it, or both. `None` if nobody does.
pub(super) fn setters(is_pod: bool, bad: &[&str]) -> Option<String> {
    let mut setters = Vec::new();
    if is_pod {
        setters.push("pod".to_owned());
    }
    if !bad.is_empty() {
        setters.push(containers(bad));
    }
    (!setters.is_empty()).then(|| setters.join(" and "))
}

/// Values that are told once each, in order.
pub(super) type Told<'a> = BTreeSet<&'a str>;
