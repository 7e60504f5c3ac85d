//! The cluster under measurement, and what is read from outside of it: memory, CPU, start-up time.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use coracle_tests::{
    binary, image_archive,
    process::{Process, succeed},
    site::Site,
};
use serde_json::Value;

use crate::{
    report::{Row, print_stages, print_table, progress},
    stages::Stage,
};

/// How long the cluster rests before its idle CPU is measured, and for how long that is.
const IDLE_SPAN: Duration = Duration::from_secs(15);
const SETTLE_SPAN: Duration = Duration::from_secs(10);

/// Tells a measurement whose memory it is to read.
pub(crate) const PID_VARIABLE: &str = "CORACLE_BENCH_PID";

pub(crate) struct Bench {
    pub(crate) site: Site,
    pub(crate) up: Option<Process>,
    pub(crate) rows: Vec<Row>,
    pub(crate) stages: Vec<Stage>,
}

/// Runs the given sections, or all of them, and prints what they show; returns the rows.
pub(crate) fn run(sections: &[&str]) -> anyhow::Result<Vec<Row>> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a node needs root");
    }
    let wanted = |section: &str| sections.is_empty() || sections.contains(&section);
    let mut site = Site::new();
    site.add_host("n1", 1);
    site.memory_dir("run");
    let mut bench = Bench {
        site,
        up: None,
        rows: Vec::new(),
        stages: Vec::new(),
    };
    bench.import();
    let result = (|| {
        bench.start_up()?;
        if wanted("pods") {
            bench.pods()?;
        }
        if wanted("policies") {
            bench.policies()?;
        }
        if wanted("idle") {
            bench.idle()?;
        }
        if wanted("stages") {
            bench.stages()?;
        }
        if wanted("service") {
            bench.service()?;
        }
        if wanted("service") || wanted("names") {
            bench.names()?;
        }
        if wanted("service") {
            bench.forget_services()?;
        }
        if wanted("api") {
            bench.api()?;
        }
        if wanted("api") || wanted("watchers") {
            bench.watchers()?;
        }
        if wanted("api") || wanted("memory") {
            bench.memory()?;
        }
        if wanted("kinds") {
            bench.kinds()?;
        }
        if wanted("kinds") || wanted("definitions") {
            bench.definitions()?;
        }
        if wanted("workloads") {
            bench.workloads()?;
        }
        if wanted("scheduling") {
            bench.scheduling()?;
        }
        if wanted("etcd") {
            bench.etcd()?;
        }
        if wanted("scale") {
            bench.scale()?;
        }
        Ok(())
    })();
    print_table(&bench.rows);
    print_stages(&bench.stages);
    bench.stop();
    result.map(|()| std::mem::take(&mut bench.rows))
}

impl Bench {
    pub(crate) fn path(&self, name: &str) -> String {
        self.site.subdir(name).to_string_lossy().into_owned()
    }

    fn import(&self) {
        for image in ["nginx", "busybox"] {
            let mut command = Command::new(binary("coracle"));
            succeed(
                command
                    .args(["image", "import", "--data-dir", &self.path("data")])
                    .arg(image_archive(image)),
            );
        }
    }

    fn node_args(&self) -> Vec<String> {
        let (data, run, cgroup) = (self.path("data"), self.path("run"), self.site.cgroup("n1"));
        [
            "--data-dir",
            &data,
            "--run-dir",
            &run,
            "--cgroup-root",
            &cgroup,
            "--node-name",
            "n1",
            "--node-ip",
            "198.18.0.1",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    pub(crate) fn start(&mut self) -> u64 {
        let command = self.up_command();
        self.start_as(command)
    }

    pub(crate) fn up_command(&self) -> Command {
        let mut command = self.site.command("n1", binary("coracle"));
        command
            .args(["up", "--bind", "198.18.0.1:6443"])
            .args(self.node_args());
        // How full this machine's disk is must not matter.
        command.args(["--eviction-hard", ""]);
        command
    }

    pub(crate) fn start_as(&mut self, command: Command) -> u64 {
        let begin = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        self.up = Some(Process::start(command, &self.site.dir().join("up.log")));
        u64::try_from(begin).unwrap_or(0)
    }

    /// Runs one measurement inside the namespace.
    pub(crate) fn within(&self, what: &str) -> anyhow::Result<Value> {
        self.within_of("data", what)
    }

    /// As [`Bench::within`], of the server with another data directory.
    pub(crate) fn within_of(&self, data: &str, what: &str) -> anyhow::Result<Value> {
        self.within_with(data, what, &[])
    }

    /// The same with more variables.
    pub(crate) fn within_with(
        &self,
        data: &str,
        what: &str,
        variables: &[(&str, &Path)],
    ) -> anyhow::Result<Value> {
        progress(what);
        let kubeconfig = self.site.dir().join(data).join("admin.kubeconfig");
        let mut command = self.site.command("n1", std::env::current_exe()?);
        command.envs(variables.iter().copied());
        if let Some(up) = &self.up {
            command.env(PID_VARIABLE, up.pid().to_string());
        }
        let output = command.args(["within", what]).arg(kubeconfig).output()?;
        if !output.status.success() {
            let log = self.up.as_ref().map(Process::output).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            bail!(
                "{}\nlog (newest first):\n{}",
                String::from_utf8_lossy(&output.stderr),
                tail.join("\n")
            );
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn start_up(&mut self) -> anyhow::Result<()> {
        self.start();
        self.within("first-pod")?;
        self.stop_process();
        let begin = self.start();
        let ready = since(&self.within("ready")?, begin)?;
        self.within("first-pod")?;
        self.stop_process();
        let begin = self.start();
        let pod = since(&self.within("first-pod")?, begin)?;
        self.rows.push(Row::at_most(
            "`coracle up`: exec to /readyz ok",
            ready,
            "ms",
            300.0,
        ));
        self.rows.push(Row::at_most(
            "`coracle up`: exec to the first pod Ready",
            pod,
            "ms",
            1000.0,
        ));
        Ok(())
    }

    fn pods(&mut self) -> anyhow::Result<()> {
        let value = self.within("pods")?;
        let ms = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let (pss, pods) = self.shim_pss()?;
        self.rows.push(Row::at_most(
            "pod create to Ready, p50",
            ms("start_p50_ms"),
            "ms",
            50.0,
        ));
        self.rows.push(Row::at_most(
            "pod create to Ready, p99",
            ms("start_p99_ms"),
            "ms",
            120.0,
        ));
        self.rows.push(Row::at_most(
            "50 pods at once, all Ready",
            ms("burst_ms"),
            "ms",
            1500.0,
        ));
        self.rows.push(Row::at_most(
            format!("shim, PSS a pod ({pods} pods)"),
            pss,
            "MB",
            1.5,
        ));
        let gone = self.within("pods-gone")?;
        let gone = gone["gone_ms"].as_f64().unwrap_or(f64::NAN);
        self.rows.push(Row::at_most(
            "50 pods deleted, all gone",
            gone,
            "ms",
            3000.0,
        ));
        Ok(())
    }

    fn idle(&mut self) -> anyhow::Result<()> {
        progress("idle");
        std::thread::park_timeout(SETTLE_SPAN);
        let pid = self.up.as_ref().context("the cluster runs")?.pid();
        let begin = Instant::now();
        let before = cpu_ticks(pid.as_raw())?;
        std::thread::park_timeout(IDLE_SPAN);
        let ticks = cpu_ticks(pid.as_raw())? - before;
        let percent = ticks / begin.elapsed().as_secs_f64();
        self.rows.push(Row::at_most(
            "`coracle up` idle: resident",
            resident_mb(pid.as_raw())?,
            "MB",
            50.0,
        ));
        self.rows.push(Row::at_most(
            "`coracle up` idle: CPU of one core",
            percent,
            "%",
            1.0,
        ));
        Ok(())
    }

    /// Proportional share of every shim of this cluster, on average, in MB; and how many there are.
    fn shim_pss(&self) -> anyhow::Result<(f64, usize)> {
        let mut shares = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let cmdline = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&cmdline);
            // The shim's arguments name its pod, and no other cluster has pods of these names.
            if !text.starts_with("coracle-shim default/burst-") {
                continue;
            }
            let rollup = fs::read_to_string(entry.path().join("smaps_rollup"))?;
            shares.push(kilobytes(&rollup, "Pss:")? / 1e3);
        }
        if shares.is_empty() {
            bail!("no shim runs");
        }
        Ok((
            shares.iter().sum::<f64>() / shares.len() as f64,
            shares.len(),
        ))
    }

    pub(crate) fn stop_process(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.stop();
        }
    }

    fn stop(&mut self) {
        self.stop_process();
        let mut command = self.site.command("n1", binary("coracle"));
        command.arg("reset").args(self.node_args());
        succeed(&mut command);
    }
}

pub(crate) fn since(value: &Value, begin: u64) -> anyhow::Result<f64> {
    let at = value["at_ns"]
        .as_u64()
        .context("the measurement tells when")?;
    Ok(at.saturating_sub(begin) as f64 / 1e6)
}

pub(crate) fn resident_mb(pid: i32) -> anyhow::Result<f64> {
    Ok(kilobytes(
        &fs::read_to_string(format!("/proc/{pid}/status"))?,
        "VmRSS:",
    )? / 1e3)
}

/// The most that was resident at once.
pub(crate) fn peak_mb(pid: i32) -> anyhow::Result<f64> {
    Ok(kilobytes(
        &fs::read_to_string(format!("/proc/{pid}/status"))?,
        "VmHWM:",
    )? / 1e3)
}

/// Without pages of files: what a load adds, whatever of the program is mapped meanwhile.
pub(crate) fn anonymous_kb(pid: i32) -> anyhow::Result<f64> {
    kilobytes(
        &fs::read_to_string(format!("/proc/{pid}/status"))?,
        "RssAnon:",
    )
}

fn kilobytes(text: &str, field: &str) -> anyhow::Result<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("no {field}"))?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// User and system time in clock ticks: hundredths of a second on every Linux.
pub(crate) fn cpu_ticks(pid: i32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .context("stat has a name")?
        .1
        .split_whitespace()
        .collect();
    Ok(fields[11].parse::<f64>()? + fields[12].parse::<f64>()?)
}
