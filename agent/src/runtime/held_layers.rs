//! Notes which layers the containers of an older agent have mounted, which did not do so itself: from here on nothing
//! removes those.

use std::{fs, path::Path};

use coracle_shim_protocol::{CreateSpec, layout};
use coracle_telemetry::Chain;

use crate::image::HELD_LAYERS;

/// Writes the note of the container in `directory` into `holder`, its directory of writable layers, unless there is one.
pub(super) fn note(directory: &Path, holder: &Path) {
    let file = holder.join(HELD_LAYERS);
    if file.exists() || !holder.is_dir() {
        return;
    }
    let create = fs::read(directory.join(layout::CREATE)).ok();
    let Some(create) = create.and_then(|bytes| serde_json::from_slice::<CreateSpec>(&bytes).ok()) else { return };
    if let Err(error) = fs::write(&file, names(&create.layers)) {
        tracing::warn!(file = %file.display(), error = %Chain(&error), "note the layers of a container");
    }
}

/// Of `<layers>/<name>/fs`, the names.
fn names(layers: &[std::path::PathBuf]) -> String {
    let name = |layer: &std::path::PathBuf| Some(layer.parent()?.file_name()?.to_str()?.to_owned());
    layers.iter().filter_map(name).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_named_by_their_directory() {
        assert_eq!(names(&["/i/layers/ab/fs".into(), "/i/layers/cd/fs".into()]), "ab\ncd");
    }
}
