//! Which layers containers have mounted: a note in each container's directory of writable layers,
//! which the runtime makes and the image store heeds. Nobody removes a layer that a note names.
//! Both find the notes by what is here.
//!
//! ```text
//! <agent's directory>/images                        the image store
//! <agent's directory>/containers                    the runtime's root
//! <agent's directory>/containers/containers/<id>    a container: `upper`, `work`, and `layers`, the note
//! ```

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use coracle_shim_protocol::{CreateSpec, layout};
use coracle_telemetry::ErrorChain;

/// In a container's directory of writable layers: the names of the directories of the layers that
/// it has mounted, one a line. The image store keeps those.
pub(crate) const HELD_LAYERS: &str = "layers";
/// In the same directory, made before the container's file system is mounted.
const UPPER: &str = "upper";

/// The runtime's root in the agent's directory.
pub(crate) fn runtime_root(agent_dir: &Path) -> PathBuf {
    agent_dir.join("containers")
}

/// In the runtime's root: one directory a container, which goes with it.
pub(crate) fn holders(runtime_root: &Path) -> PathBuf {
    runtime_root.join("containers")
}

/// The names of the layers that the containers beside this agent's images have mounted; `None`
/// while that is not known of one of them, as an older agent made no note.
pub(crate) fn held(agent_dir: &Path) -> io::Result<Option<BTreeSet<String>>> {
    let mut held = BTreeSet::new();
    let entries = match fs::read_dir(holders(&runtime_root(agent_dir))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(held)),
        entries => entries?,
    };
    for entry in entries {
        let holder = entry?.path();
        match fs::read_to_string(holder.join(HELD_LAYERS)) {
            Ok(names) => held.extend(names.lines().map(str::to_owned)),
            // No container, one that is being made and will look for its layers after it has noted
            // them, or one of which only the record is left.
            Err(error)
                if is_absent(&error) && !holder.join(UPPER).try_exists().or_else(absent)? => {}
            Err(error) if is_absent(&error) => {
                tracing::debug!(holder = %holder.display(), "no layer is removed: it may have any mounted");
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(held))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn absent(error: io::Error) -> io::Result<bool> {
    if is_absent(&error) {
        Ok(false)
    } else {
        Err(error)
    }
}

/// Notes that nothing is mounted for this holder: there is no container, or it was one of another
/// boot. Unless there is a note.
pub(super) fn note_none(holder: &Path) {
    if holder.is_dir() && !holder.join(HELD_LAYERS).exists() {
        write(holder, "");
    }
}

/// Notes which layers the container of an older agent has mounted, which did not do so itself: what
/// is in `directory` goes into `holder`, its directory of writable layers, unless there is a note.
pub(super) fn note(directory: &Path, holder: &Path) {
    if holder.join(HELD_LAYERS).exists() || !holder.is_dir() {
        return;
    }
    let create = fs::read(directory.join(layout::CREATE)).ok();
    let Some(create) = create.and_then(|bytes| serde_json::from_slice::<CreateSpec>(&bytes).ok())
    else {
        return;
    };
    write(holder, &names(&create.layers));
}

fn write(holder: &Path, names: &str) {
    let (file, new) = (holder.join(HELD_LAYERS), holder.join(".layers.new"));
    // In one step: somebody may be reading.
    if let Err(error) = fs::write(&new, names).and_then(|()| fs::rename(&new, &file)) {
        tracing::warn!(file = %file.display(), error = %ErrorChain(&error), "cannot note the layers of a container");
    }
}

/// Of `<layers>/<name>/fs`, the names.
fn names(layers: &[PathBuf]) -> String {
    let name = |layer: &PathBuf| Some(layer.parent()?.file_name()?.to_str()?.to_owned());
    layers
        .iter()
        .filter_map(name)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_named_by_their_directory() {
        assert_eq!(
            names(&["/i/layers/ab/fs".into(), "/i/layers/cd/fs".into()]),
            "ab\ncd"
        );
    }
}
