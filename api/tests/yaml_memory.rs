//! What a YAML body costs while it is read, in memory of this process: the only test of its
//! program.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use coracle_api::{
    decode::{ContentType, FieldValidation, decode},
    resource::Gvk,
};

/// As large as bodies may be.
const BODY_BYTES: usize = 2_800_000;
/// Twenty times that: 56 MB, for bodies of any size.
const MOST_BYTES: usize = 20 * BODY_BYTES;

/// Of this process, in bytes: `VmRSS` is what it has, `VmHWM` the most that it had.
fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

fn body(data: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {{name: a}}\nrevision: 1\ndata: {data}\n"
    )
}

#[test]
fn no_body_of_yaml_costs_more_than_twenty_times_the_largest() {
    let gvk = Gvk::new("apps", "v1", "ControllerRevision");
    let read = |data: &str| {
        let body = body(data);
        decode(
            body.as_bytes(),
            ContentType::Yaml,
            &gvk,
            FieldValidation::Strict,
        )
        .map(drop)
    };
    read("{}").unwrap();
    let pairs = |most: usize| (0..most).map(|key| format!("{key}: ,")).collect::<String>();
    let held = format!(
        "{{a: &a [{}], b: [{}]}}",
        "x,".repeat(9000),
        "*a,".repeat(20)
    );
    let bodies = [
        (
            "scalars",
            format!("[{}]", "a,".repeat(BODY_BYTES / 2)),
            false,
        ),
        (
            "quoted",
            format!("[{}]", "'',".repeat(BODY_BYTES / 3)),
            false,
        ),
        (
            "lists",
            format!("[{}]", "[],".repeat(BODY_BYTES / 3)),
            false,
        ),
        ("pairs", format!("{{{}}}", pairs(300_000)), false),
        (
            "as many scalars as may be",
            format!("[{}]", "a,".repeat(199_000)),
            true,
        ),
        (
            "as many pairs as may be",
            format!("{{{}}}", pairs(99_000)),
            true,
        ),
        ("as many as aliases may stand for", held, true),
        (
            "one text",
            format!("'{}'", "a ".repeat(BODY_BYTES / 2)),
            true,
        ),
    ];
    let before = memory("VmRSS");
    for (what, data, is_read) in bodies {
        let read = read(&data);
        let most = memory("VmHWM").saturating_sub(before);
        eprintln!(
            "{what}: {} bytes of text, {most} at the most so far",
            data.len()
        );
        assert_eq!(read.is_ok(), is_read, "{what}: {read:?}");
        assert!(most < MOST_BYTES, "{what}: {most} bytes");
    }
}
