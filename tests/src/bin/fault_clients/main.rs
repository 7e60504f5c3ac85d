//! Clients of several servers that go on while parts of the cluster fail, and write down what they
//! did and saw: `fault_clients SEED HISTORY STOP KUBECONFIG...`, with a kubeconfig for each server.
//! They stop once there is a file STOP, when nothing fails any more: then controllers get to finish
//! what they are at, and all that is there is listed on every server.
#![allow(clippy::print_stderr, reason = "a test's program says what failed")]

mod recorder;
mod server;
mod watchers;
mod work;
mod writers;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use coracle_tests::faults::plan::Random;
use futures::future::{LocalBoxFuture, join_all};
use tokio::sync::watch;

use crate::{recorder::Recorder, server::Servers, writers::Registers};

/// Clients that read and write registers.
const REGISTER_CLIENTS: usize = 6;
/// Clients that make an object after the other.
const JOURNAL_CLIENTS: usize = 3;
/// Between two looks for the file.
const LOOK: Duration = Duration::from_millis(100);

/// What everybody is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    /// Write and watch.
    Work,
    /// Write no more.
    Rest,
    /// Compare, and end.
    End,
}

struct Args {
    seed: u64,
    history: PathBuf,
    stop: PathBuf,
    kubeconfigs: Vec<PathBuf>,
}

fn args() -> Result<Args> {
    let mut args = std::env::args_os().skip(1);
    let mut next = || {
        args.next()
            .context("fault_clients SEED HISTORY STOP KUBECONFIG...")
    };
    let seed = next()?.to_string_lossy().parse().context("the seed")?;
    let (history, stop) = (next()?.into(), next()?.into());
    let kubeconfigs: Vec<PathBuf> = args.map(PathBuf::from).collect();
    if kubeconfigs.is_empty() {
        bail!("there is no kubeconfig");
    }
    Ok(Args {
        seed,
        history,
        stop,
        kubeconfigs,
    })
}

fn main() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = args()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> Result<()> {
    let servers = Servers::read(&args.kubeconfigs).await?;
    let recorder = Recorder::create(&args.history)?;
    work::prepare(&mut servers.connect()?, args.kubeconfigs.len()).await?;
    let (phase, _) = watch::channel(Phase::Work);
    let mut random = Random::new(args.seed);
    let registers = Registers::default();
    let mut writing: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
    for client in 0..REGISTER_CLIENTS + JOURNAL_CLIENTS {
        let writer = writers::Writer {
            client,
            servers: servers.connect()?,
            recorder: &recorder,
            random: Random::new(random.any()),
            phase: phase.subscribe(),
            registers: &registers,
        };
        writing.push(match client < REGISTER_CLIENTS {
            true => Box::pin(writer.registers()),
            false => Box::pin(writer.journal()),
        });
    }
    writing.push(Box::pin(work::services(
        servers.connect()?,
        Random::new(random.any()),
        phase.subscribe(),
    )));
    writing.push(Box::pin(work::scale(
        servers.connect()?,
        Random::new(random.any()),
        phase.subscribe(),
    )));
    let mut watching: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
    for server in 0..args.kubeconfigs.len() {
        for kind in watchers::KINDS {
            let link = servers.connect_to(server)?;
            watching.push(Box::pin(watchers::watch(
                link,
                kind,
                &recorder,
                phase.subscribe(),
            )));
        }
    }
    let conduct = async {
        while !args.stop.exists() {
            tokio::time::sleep(LOOK).await;
        }
        phase.send_replace(Phase::Rest);
    };
    let finish = async {
        tokio::join!(join_all(writing), conduct);
        let mut servers = servers.connect()?;
        if let Err(error) = work::settle(&mut servers).await {
            recorder.odd(format!("the Deployment did not settle: {error:#}"));
        }
        phase.send_replace(Phase::End);
        anyhow::Ok(())
    };
    let (finished, _) = tokio::join!(finish, join_all(watching));
    finished?;
    recorder.finish()
}
