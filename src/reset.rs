//! `coracle reset`: removes what a stopped node left running. The agent's library knows what that
//! is.

use std::path::Path;

use anyhow::Context;
use coracle_controlplane::Server;

use crate::{Failure, cli::ResetArgs, say, settings};

/// Carries out the command.
pub(crate) fn run(args: &ResetArgs) -> Result<(), Failure> {
    let config =
        settings::agent_config(&args.data, &args.cluster, &args.node).map_err(Failure::Usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let data_dir = config.data_dir.clone();
    // Before anything is removed: a server would go on without its store.
    let _server_lock = if args.delete_data {
        Server::keep_off(&data_dir)
            .context("--delete-data deletes the server's data, too: stop the server first")?
    } else {
        None
    };
    let volumes = if args.delete_data {
        coracle_agent::kept_volumes(&config).context("look for volumes of this node")?
    } else {
        Vec::new()
    };
    runtime.block_on(coracle_agent::reset(config))?;
    // What still ends in the background (a link, a helper) would write into the directory while it
    // is deleted.
    drop(runtime);
    if args.delete_local_volumes {
        for volume in &volumes {
            remove(volume)?;
        }
    }
    if args.delete_data && (volumes.is_empty() || args.delete_local_volumes) {
        remove(&data_dir)?;
    } else if args.delete_data {
        coracle_agent::remove_all_but_volumes(&data_dir, &volumes)
            .with_context(|| format!("delete what is in {}", data_dir.display()))?;
        say(format_args!(
            "data of persistent volumes stays, --delete-local-volumes deletes it as well:"
        ));
        for volume in &volumes {
            say(format_args!("  {}", volume.display()));
        }
    }
    say(format_args!("nothing of this node is left running"));
    Ok(())
}

fn remove(path: &Path) -> Result<(), anyhow::Error> {
    coracle_agent::remove_tree(path).with_context(|| format!("delete {}", path.display()))
}
