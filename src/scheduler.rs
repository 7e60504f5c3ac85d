//! `coracle scheduler`: one more scheduler, as a process of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use coracle_controlplane::scheduling::{self, SchedulerConfig};

use crate::{
    Failure, admin,
    cli::SchedulerArgs,
    run::{announce_ready, block_on},
    settings::host_name,
};

pub(crate) fn run(args: &SchedulerArgs) -> Result<(), Failure> {
    let config = read_config(&args.scheduler_config).map_err(Failure::Usage)?;
    let kubeconfig = kubeconfig(args, &config).map_err(Failure::Usage)?;
    let host = host_name().context("find this machine's name")?;
    block_on(async move |shutdown| {
        let client = admin::client(&kubeconfig).await?;
        announce_ready();
        Ok(scheduling::run(client, config, &host, shutdown).await?)
    })
}

fn kubeconfig(args: &SchedulerArgs, config: &SchedulerConfig) -> anyhow::Result<PathBuf> {
    let said = args.kubeconfig.as_ref().or(config.kubeconfig.as_ref());
    said.cloned().ok_or_else(|| {
        anyhow!("no API server is named: give --kubeconfig, or clientConnection.kubeconfig in --scheduler-config")
    })
}

/// What `--scheduler-config` names.
pub(crate) fn read_config(path: &Path) -> anyhow::Result<SchedulerConfig> {
    let what = || format!("--scheduler-config {}", path.display());
    let text = std::fs::read_to_string(path).with_context(what)?;
    SchedulerConfig::parse(&text).with_context(what)
}
