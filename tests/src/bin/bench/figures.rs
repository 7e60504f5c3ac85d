//! The API's figures: rates and lists beside a whole node, memory and watches in servers of their
//! own.

use std::time::Instant;

use anyhow::Context;
use coracle_tests::{binary, process::Process};
use serde_json::Value;

use crate::{
    cluster::{Bench, resident_mb},
    report::Row,
};

impl Bench {
    pub(crate) fn api(&mut self) -> anyhow::Result<()> {
        let value = self.within("api")?;
        for (name, goal) in [
            ("get_1", 3000.0),
            ("create_1", 1500.0),
            ("update_1", 1500.0),
            ("get_32", 15000.0),
            ("create_32", 6000.0),
            ("update_32", 6000.0),
        ] {
            let rate = value[name]["per_s"].as_f64().unwrap_or(f64::NAN);
            let what = format!("API {} connection(s)", name.replace('_', ", "));
            self.rows.push(Row::at_least(what, rate, "/s", goal));
        }
        let contended = value["contend_32"]["per_s"].as_f64().unwrap_or(f64::NAN);
        self.rows.push(Row::told(
            "API update of one object, 32 connection(s)",
            contended,
            "/s",
        ));
        let value = self.within("many")?;
        let rate = |name: &str| value[name]["per_s"].as_f64().unwrap_or(f64::NAN);
        let objects = &value["objects"];
        self.rows.push(Row::at_least(
            format!("list 500 of {objects}, 4 connections"),
            rate("list500_4"),
            "/s",
            1000.0,
        ));
        self.rows.push(Row::at_least(
            format!("list all {objects}"),
            rate("list_all_1"),
            "/s",
            40.0,
        ));
        Ok(())
    }

    /// 1,000 watchers, in a server without a node.
    pub(crate) fn watchers(&mut self) -> anyhow::Result<()> {
        self.start_server("watched")?;
        let value = self.within_of("watched", "watchers")?;
        let number = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let what = "updates that each of 1000 watchers receives";
        self.rows
            .push(Row::at_least(what, number(&value, "per_s"), "/s", 1000.0));
        self.rows.push(Row::at_most(
            "resident a watcher",
            number(&value, "watcher_kb"),
            "KB",
            4.0,
        ));
        let value = self.within_of("watched", "connections")?;
        let what = "resident a watcher with a TLS connection of its own";
        self.rows
            .push(Row::told(what, number(&value, "watcher_kb"), "KB"));
        self.stop_process();
        Ok(())
    }

    /// Memory of servers without a node, each begun for the purpose.
    pub(crate) fn memory(&mut self) -> anyhow::Result<()> {
        let pid = self.start_server("maps")?;
        self.rows.push(Row::told(
            "`coracle server` without objects: resident",
            resident_mb(pid)?,
            "MB",
        ));
        let value = self.within_of("maps", "maps-memory")?;
        let what = format!("resident with {} ConfigMaps of 1 KB", value["objects"]);
        self.rows
            .push(Row::at_most(what, resident_mb(pid)?, "MB", 80.0));
        self.stop_process();
        let pid = self.start_server("podful")?;
        let before = resident_mb(pid)?;
        let value = self.within_of("podful", "pods-memory")?;
        let pods = value["objects"].as_f64().context("a number of pods")?;
        let each = (resident_mb(pid)? - before) * 1e3 / pods;
        let what = format!(
            "resident a Pod at {pods} Pods ({} B of JSON each)",
            value["json_bytes"]
        );
        self.rows.push(Row::at_most(what, each, "KB", 6.0));
        self.stop_process();
        Ok(())
    }

    /// A cluster that is made of objects.
    pub(crate) fn scale(&mut self) -> anyhow::Result<()> {
        // Room for the addresses of some thousand nodes.
        let wide = ["--cluster-cidr", "100.64.0.0/10"];
        self.start_server_with("scale", &wide)?;
        let value = self.within_of("scale", "scale")?;
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let told = [
            ("resident without objects", "empty_mb", "MB"),
            ("making all of it", "made_s", "s"),
            ("resident for a watcher a node", "watchers_mb", "MB"),
            (
                "100 statuses/s and Leases: CPU of one core",
                "cpu_percent",
                "%",
            ),
            ("status written, p50", "status_p50_ms", "ms"),
            ("status written, p99", "status_p99_ms", "ms"),
            ("written to seen by its node, p50", "event_p50_ms", "ms"),
            ("written to seen by its node, p99", "event_p99_ms", "ms"),
            ("pods of one node, listed, p50", "list_node_p50_ms", "ms"),
            ("all pods as a table", "table_s", "s"),
            (
                "all pods as a table: resident for it",
                "table_peak_mb",
                "MB",
            ),
            ("all pods as JSON", "json_s", "s"),
            ("all pods as JSON: resident for it", "json_peak_mb", "MB"),
        ];
        let size = format!("({} nodes, {} pods)", value["nodes"], value["pods"]);
        let what = format!("scale: resident {size}");
        self.rows
            .push(Row::at_most(what, number("pods_mb"), "MB", 600.0));
        for (what, name, unit) in told {
            let what = format!("scale: {what}");
            self.rows.push(Row::told(what, number(name), unit));
        }
        let begin = Instant::now();
        self.start_server_with("scale", &wide)?;
        let ready = begin.elapsed().as_secs_f64();
        self.rows
            .push(Row::told("scale: exec to /readyz ok", ready, "s"));
        self.stop_process();
        Ok(())
    }

    /// A control plane alone, over an empty store; returns its PID.
    pub(crate) fn start_server(&mut self, data: &str) -> anyhow::Result<i32> {
        self.start_server_with(data, &[])
    }

    /// The same with more flags, over what its directory has.
    pub(crate) fn start_server_with(&mut self, data: &str, flags: &[&str]) -> anyhow::Result<i32> {
        self.stop_process();
        let mut command = self.site.command("n1", binary("coracle"));
        command.args([
            "server",
            "--bind",
            "198.18.0.1:6443",
            "--data-dir",
            &self.path(data),
        ]);
        command.args(flags);
        let up = Process::start(command, &self.site.dir().join(format!("{data}.log")));
        let pid = up.pid().as_raw();
        self.up = Some(up);
        self.within_of(data, "ready")?;
        Ok(pid)
    }
}
