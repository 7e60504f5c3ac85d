//! `coracle scheduler`, one more scheduler as a process of its own; `coracle why`, what schedulers
//! say of a pod.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use coracle_controlplane::scheduling::{self, SchedulerConfig};

use crate::{
    Failure, admin,
    cli::{SchedulerArgs, WhyArgs},
    run::{announce_ready, block_on},
    say,
    settings::{host_name, scheduler_config},
};

pub(crate) fn run(args: &SchedulerArgs) -> Result<(), Failure> {
    let config = scheduler_config(&args.scheduler_config).map_err(Failure::Usage)?;
    let kubeconfig = kubeconfig(args, &config).map_err(Failure::Usage)?;
    let host = host_name().context("find this machine's name")?;
    block_on(async move |shutdown| {
        let reading = format!("read kubeconfig {}", kubeconfig.display());
        let client = admin::client(&kubeconfig, &reading).await?;
        announce_ready();
        Ok(scheduling::run(client, config, &host, shutdown).await?)
    })
}

/// Prints what there is to say.
pub(crate) fn why(args: &WhyArgs) -> Result<(), Failure> {
    let config = args.scheduler_config.as_deref().map(scheduler_config);
    let config = config.transpose().map_err(Failure::Usage)?;
    let path = admin::path(&args.api);
    let (namespace, pod) = (args.namespace.clone(), args.pod.clone());
    block_on(async move |_| {
        let client = admin::client(&path, &admin::reading(&path)).await?;
        let config = config.unwrap_or_default();
        let said = scheduling::why(client, config, &namespace, &pod).await?;
        say(format_args!("{}", said.to_string().trim_end()));
        Ok(())
    })
}

fn kubeconfig(args: &SchedulerArgs, config: &SchedulerConfig) -> anyhow::Result<PathBuf> {
    let said = args.kubeconfig.as_ref().or(config.kubeconfig.as_ref());
    said.cloned().ok_or_else(|| {
        anyhow!("no API server is named: give --kubeconfig, or clientConnection.kubeconfig in --scheduler-config")
    })
}
