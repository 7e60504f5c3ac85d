//! Fuzz targets for everything that reads what strangers wrote.
//!
//! `fuzz/run.sh` builds it with coverage and runs every target; the target of a run is in
//! `FUZZ_TARGET`. One binary for all, because linking takes longer than a target's whole run. A
//! target panics where something does not hold that must hold for every input; time and memory are
//! libFuzzer's to watch.
//!
//! | module | targets |
//! |---|---|
//! | `cel` | `cel`, `cel-words` |
//! | `cron` | `cron` |
//! | `decode` | `decode-json`, `decode-yaml`, `decode-protobuf`, `quantity` |
//! | `custom` | `decode-custom` |
//! | `structural` | `structural`: rules of schemas, and values against them |
//! | `cost` | `cost`: time for each byte, of all decoders of the API server |
//! | `patch` | `json-patch`, `merge-patch`, `strategic-patch`, `apply` |
//! | `selector` | `label-selector`, `field-selector` |
//! | `coracle_apiserver::fuzzing` | `request`, `continue-token`, `token`, `admission-review`, `conversion`, `websocket`, `spdy` |
//! | `coracle_scheduler::fuzzing` | `placing`, `scheduler-config` |
//! | `coracle_agent::fuzzing` | `image-reference`, `image-documents`, `image-layer`, `image-archive`, `registry-challenge`, `cni-configuration`, `cni-result`, `log`, `join-token` |
//! | `coracle_dns::fuzzing` | `dns` |
//! | `coracle_netfilter::fuzzing` | `netlink` |
//! | `coracle_shim::oci::fuzzing` | `image-user` |

#![no_main]

mod cel;
mod cost;
mod cron;
mod custom;
mod decode;
mod patch;
mod selector;
mod structural;

use std::sync::LazyLock;

use coracle_agent::fuzzing as agent;
use coracle_apiserver::fuzzing as apiserver;
use coracle_scheduler::fuzzing as scheduler;
use coracle_shim::oci::fuzzing as helper;
use libfuzzer_sys::fuzz_target;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 37] = [
    ("decode-json", decode::json),
    ("decode-yaml", decode::yaml),
    ("decode-protobuf", decode::protobuf),
    ("decode-custom", custom::object),
    ("structural", structural::schema_and_value),
    ("quantity", |data| text(data, decode::quantity)),
    ("cel", |data| text(data, cel::expression)),
    ("cel-words", cel::words),
    ("cost", cost::cost),
    ("cron", |data| text(data, cron::schedule)),
    ("json-patch", patch::json),
    ("merge-patch", patch::merge),
    ("strategic-patch", patch::strategic),
    ("apply", patch::apply),
    ("label-selector", |data| text(data, selector::label)),
    ("field-selector", |data| text(data, selector::field)),
    ("request", |data| text(data, apiserver::request)),
    ("continue-token", |data| {
        text(data, apiserver::continue_token)
    }),
    ("token", |data| text(data, apiserver::token)),
    ("admission-review", apiserver::admission_review),
    ("conversion", apiserver::conversion),
    ("websocket", apiserver::websocket),
    ("spdy", apiserver::spdy),
    ("dns", coracle_dns::fuzzing::packet),
    ("netlink", coracle_netfilter::fuzzing::netlink),
    ("placing", scheduler::placing),
    ("scheduler-config", |data| text(data, scheduler::config)),
    ("image-reference", |data| text(data, agent::image_reference)),
    ("image-documents", agent::image_documents),
    ("image-layer", agent::image_layer),
    ("image-archive", agent::image_archive),
    ("image-user", |data| text(data, helper::image_user)),
    ("registry-challenge", |data| {
        text(data, agent::registry_challenge)
    }),
    ("cni-configuration", agent::cni_configuration),
    ("cni-result", agent::cni_result),
    ("log", agent::log),
    ("join-token", |data| text(data, agent::join_token)),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let known = TARGETS.map(|(name, _)| name).join(", ");
    found
        .unwrap_or_else(|| panic!("FUZZ_TARGET={name:?}, but expected one of {known}"))
        .1
});

fuzz_target!(|data: &[u8]| TARGET(data));

/// Runs `target` if the bytes are text.
fn text(data: &[u8], target: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        target(text);
    }
}
