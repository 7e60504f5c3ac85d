//! Custom kinds: their objects beside ConfigMaps, rules in CEL, and what a thousand definitions
//! cost.
//!
//! Others may use the machine meanwhile: what a request costs is time of the server's threads, and
//! of several rounds the least; what a document takes is the least of several requests.

pub(crate) mod definitions;
pub(crate) mod objects;

use std::{fs, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    cluster::{Bench, PID_VARIABLE, anonymous_kb, resident_mb},
    report::Row,
};

pub(crate) const GROUP: &str = "bench.example.org";

impl Bench {
    pub(crate) fn kinds(&mut self) -> anyhow::Result<()> {
        self.objects_of_kinds()?;
        self.full_kind()
    }

    fn objects_of_kinds(&mut self) -> anyhow::Result<()> {
        self.start_server("kinds")?;
        let value = self.within_of("kinds", "kinds-objects")?;
        for what in ["create", "get", "list"] {
            let each = |of: &str| value[what][of].as_f64().unwrap_or(f64::NAN);
            let (maps, custom) = (each("maps_us"), each("custom_us"));
            let of_maps = format!("CPU to {what}: a ConfigMap");
            self.rows.push(Row::told(of_maps, maps, "us"));
            let of_custom = format!("CPU to {what}: a custom object of the same size");
            let goal = (maps * 1.2).round();
            self.rows.push(Row::at_most(of_custom, custom, "us", goal));
        }
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        self.rows.push(Row::at_most(
            "CPU to hold an object to 500 rules",
            number("ruled_us"),
            "us",
            2000.0,
        ));
        self.rows.push(Row::told(
            "CPU to take a definition with 500 rules",
            number("rules_us"),
            "us",
        ));
        self.stop_process();
        Ok(())
    }

    fn full_kind(&mut self) -> anyhow::Result<()> {
        let pid = self.start_server("kinds-full")?;
        let before = resident_mb(pid)?;
        let value = self.within_of("kinds-full", "kinds-full")?;
        let count = value["objects"].as_f64().context("a number of objects")?;
        let each = (resident_mb(pid)? - before) * 1e3 / count;
        let what = format!(
            "resident a custom object at {count} ({} B of JSON each)",
            value["json_bytes"]
        );
        self.rows.push(Row::told(what, each, "KB"));
        self.stop_process();
        Ok(())
    }

    pub(crate) fn definitions(&mut self) -> anyhow::Result<()> {
        let pid = self.start_server("kinds-many")?;
        let before = anonymous_kb(pid)?;
        let value = self.within_of("kinds-many", "kinds-many")?;
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let count = number("definitions");
        let of = |what: &str| format!("{count} definitions: {what}");
        self.rows
            .push(Row::told(of("made and established"), number("made_s"), "s"));
        for (name, what) in [
            ("discovery_ms", "discovery"),
            ("openapi_v3_index_ms", "OpenAPI v3, index"),
            ("openapi_v3_ms", "OpenAPI v3, one group"),
            ("openapi_v2_ms", "OpenAPI v2"),
        ] {
            let warm = number(name);
            self.rows
                .push(Row::at_most(of(&format!("{what}, warm")), warm, "ms", 50.0));
            let first = value["first"][name].as_f64().unwrap_or(f64::NAN);
            self.rows
                .push(Row::told(of(&format!("{what}, first")), first, "ms"));
        }
        let each = (number("made_kb") - before) / count;
        let what = format!("resident each ({} B of JSON)", value["json_bytes"]);
        self.rows.push(Row::at_most(of(&what), each, "KB", 60.0));
        let documents = (number("asked_kb") - before) / count;
        self.rows.push(Row::told(
            of("resident each, with all documents"),
            documents,
            "KB",
        ));
        self.stop_process();
        Ok(())
    }
}

/// The server under measurement.
fn server() -> anyhow::Result<i32> {
    let pid = std::env::var(PID_VARIABLE).with_context(|| format!("{PID_VARIABLE} is unset"))?;
    Ok(pid.parse()?)
}

/// What the threads of a process have had of processors.
fn cpu(pid: i32) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let first = text.split(' ').next();
        sum += first.and_then(|text| text.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

/// A definition of a namespaced kind in one version.
fn definition(group: &str, kind: &str, schema: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Where the objects of such a kind are.
fn path(group: &str, kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    format!("/apis/{group}/v1/namespaces/default/{plural}")
}
