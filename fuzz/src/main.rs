//! Fuzz targets for everything in the API that reads what strangers wrote.
//!
//! `fuzz/run.sh` builds it with coverage and runs every target; the target of a run is in `FUZZ_TARGET`. One binary for
//! all, because linking takes longer than a target's whole run. A target panics where something does not hold that
//! must hold for every input; time and memory are libFuzzer's to watch.
//!
//! | module | targets |
//! |---|---|
//! | `decode` | `decode-json`, `decode-yaml`, `decode-protobuf`, `quantity` |
//! | `patch` | `json-patch`, `merge-patch`, `strategic-patch`, `apply` |
//! | `selector` | `label-selector`, `field-selector` |
//! | `coracle_apiserver::fuzzing` | `request`, `continue-token`, `token`, `websocket`, `spdy` |

#![no_main]

mod decode;
mod patch;
mod selector;

use std::sync::LazyLock;

use coracle_apiserver::fuzzing;
use libfuzzer_sys::fuzz_target;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 15] = [
    ("decode-json", decode::json),
    ("decode-yaml", decode::yaml),
    ("decode-protobuf", decode::protobuf),
    ("quantity", |data| text(data, decode::quantity)),
    ("json-patch", patch::json),
    ("merge-patch", patch::merge),
    ("strategic-patch", patch::strategic),
    ("apply", patch::apply),
    ("label-selector", |data| text(data, selector::label)),
    ("field-selector", |data| text(data, selector::field)),
    ("request", |data| text(data, fuzzing::request)),
    ("continue-token", |data| text(data, fuzzing::continue_token)),
    ("token", |data| text(data, fuzzing::token)),
    ("websocket", fuzzing::websocket),
    ("spdy", fuzzing::spdy),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let known = TARGETS.map(|(name, _)| name).join(", ");
    found.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?}, but expected one of {known}")).1
});

fuzz_target!(|data: &[u8]| TARGET(data));

/// Runs `target` if the bytes are text.
fn text(data: &[u8], target: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        target(text);
    }
}
