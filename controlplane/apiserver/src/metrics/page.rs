//! The page itself: what was counted, what there is now, the process.

use coracle_telemetry::metrics::{Exposition, Kind, ProcessFigures};

use crate::state::State;

/// The whole text.
pub(crate) fn text(server: &State) -> String {
    let mut out = Exposition::default();
    out.append(&server.metrics.registry.text());
    objects(server, &mut out);
    ProcessFigures::own().write(&mut out);
    out.finish()
}

fn objects(server: &State, out: &mut Exposition) {
    let help = "Number of stored objects at the time of last check split by kind";
    out.family("apiserver_storage_objects", Kind::Gauge, help);
    let catalog = server.catalog.now();
    for resource in catalog.stored().filter(|one| one.is_storing()) {
        let count = u32::try_from(resource.cache.len()).unwrap_or(u32::MAX);
        let name = resource.group_resource.to_string();
        out.sample(
            "apiserver_storage_objects",
            &[("resource", &name)],
            count.into(),
        );
    }
}
