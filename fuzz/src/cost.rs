//! What strangers' bytes cost: time for each of them, however they repeat themselves.
//!
//! An input is a decoder, two cuts and the bytes: what lies between the cuts is repeated until the
//! whole is large. A reader that looks back at what it has read, or spells out what was only named,
//! takes longer for each byte the more there are.

use std::{hash::Hasher as _, time::Duration};

use coracle_api::{
    decode::{ContentType, FieldValidation, decode, decode_options},
    patch::{self, apply::Writer},
    resource::Gvk,
    schema::Schema,
    selector::{FieldSelector, LabelSelector},
};
use coracle_apiserver::fuzzing as apiserver;
use nix::time::{ClockId, clock_gettime};

use crate::patch::pod as base;

/// As large as inputs usually are, and one in [`RARELY`] so large that more than its share is seen.
const USUAL_BYTES: usize = 2 * 1024;
const LARGE_BYTES: usize = 32 * 1024;
const RARELY: u64 = 8;
/// Without optimization and with counters a byte takes a tenth of this.
const MOST_A_BYTE: Duration = Duration::from_micros(8);
/// For small inputs, of which one may be unlucky.
const MOST_AT_LEAST: Duration = Duration::from_millis(100);

type Decoder = fn(&[u8]);

const DECODERS: [(&str, Decoder); 13] = [
    ("JSON", |body| {
        decoded(body, ContentType::Json, FieldValidation::Warn)
    }),
    ("JSON, strict", |body| {
        decoded(body, ContentType::Json, FieldValidation::Strict)
    }),
    ("YAML", |body| {
        decoded(body, ContentType::Yaml, FieldValidation::Warn)
    }),
    ("YAML, strict", |body| {
        decoded(body, ContentType::Yaml, FieldValidation::Strict)
    }),
    ("protobuf", |body| {
        decoded(body, ContentType::Protobuf, FieldValidation::Warn)
    }),
    ("options", |body| {
        drop(decode_options(body, ContentType::Yaml, "DeleteOptions"))
    }),
    ("JSON patch", |body| {
        drop(patch::json::apply(&base().object, body))
    }),
    ("merge patch", |body| {
        drop(patch::merge::apply(&base().object, body))
    }),
    ("strategic patch", |body| {
        drop(patch::strategic::apply(base().ty, &base().object, body))
    }),
    ("apply patch", applied),
    ("label selector", |body| {
        drop(LabelSelector::parse(&String::from_utf8_lossy(body)))
    }),
    ("field selector", |body| {
        drop(FieldSelector::parse(&String::from_utf8_lossy(body)))
    }),
    ("path and query", |body| {
        apiserver::request(&String::from_utf8_lossy(body))
    }),
];

/// The time for each byte is bounded.
pub(crate) fn cost(data: &[u8]) {
    let [decoder, first, second, bytes @ ..] = data else {
        return;
    };
    let (name, decoder) = DECODERS[usize::from(*decoder) % DECODERS.len()];
    let at = |cut: u8| usize::from(cut) * bytes.len() / 256;
    let (start, end) = (at(*first).min(at(*second)), at(*first).max(at(*second)));
    let (before, pattern, after) = (&bytes[..start], &bytes[start..end], &bytes[end..]);
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(data);
    let size = if hasher.finish().is_multiple_of(RARELY) {
        LARGE_BYTES
    } else {
        USUAL_BYTES
    };
    let times = size.saturating_sub(before.len() + after.len()) / pattern.len().max(1);
    let body = [before, &pattern.repeat(times), after].concat();
    let most = MOST_AT_LEAST.max(MOST_A_BYTE * u32::try_from(body.len()).unwrap_or(u32::MAX));
    let started = processor_time();
    decoder(&body);
    let taken = processor_time() - started;
    let shown = String::from_utf8_lossy(pattern);
    assert!(
        taken <= most,
        "{name}: {taken:?} for {} bytes, of {shown:?} again and again",
        body.len()
    );
}

/// Of this thread: others may keep the machine busy.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("every thread has a clock")
        .into()
}

fn pod() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn decoded(body: &[u8], content: ContentType, validation: FieldValidation) {
    drop(decode(body, content, &pod(), validation));
}

fn applied(body: &[u8]) {
    let Ok(config) = decode(body, ContentType::Yaml, &pod(), FieldValidation::Ignore) else {
        return;
    };
    let by = Writer {
        manager: "one",
        api_version: "v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
    };
    drop(patch::apply::apply(
        &Schema::BuiltIn(base().ty),
        Some(&base().object),
        &config.object,
        by,
        true,
    ));
}
