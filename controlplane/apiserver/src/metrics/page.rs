//! The page itself: what was counted, what there is now, the process.

use std::fs;

use coracle_api::exposition::{self, Exposition, Kind, ProcessFigures};
use prometheus_client::encoding::text;

use crate::state::State;

/// The whole text.
pub(crate) fn text(server: &State) -> String {
    let mut open = String::new();
    // Writing to a String cannot fail.
    let _ = text::encode(&mut open, &server.metrics.registry);
    let mut out = Exposition::default();
    out.append(&exposition::from_open_metrics(&open));
    objects(server, &mut out);
    server.exposed.lock().iter().for_each(|write| write(&mut out));
    process().write(&mut out);
    out.finish()
}

fn objects(server: &State, out: &mut Exposition) {
    let help = "Number of stored objects at the time of last check split by kind";
    out.family("apiserver_storage_objects", Kind::Gauge, help);
    for strategy in coracle_registry::kinds::all() {
        let info = strategy.resource();
        if let Some(resource) = server.registry.get(info.group, info.version, info.plural) {
            let count = u32::try_from(resource.cache.len()).unwrap_or(u32::MAX);
            out.sample(
                "apiserver_storage_objects",
                &[("resource", &resource.group_resource.to_string())],
                count.into(),
            );
        }
    }
}

fn process() -> ProcessFigures {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let fds = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let [stat, status, limits, system] =
        ["/proc/self/stat", "/proc/self/status", "/proc/self/limits", "/proc/stat"].map(read);
    ProcessFigures::parse([&stat, &status, &limits, &system], u32::try_from(fds).unwrap_or(u32::MAX))
}
