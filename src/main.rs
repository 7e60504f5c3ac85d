//! The `coracle` binary: parses the command line and hands over.
//!
//! Order: arguments, logging, configuration, signals, runtime, `block_on`. A command line or
//! configuration that cannot be used ends with status 64 and one sentence; anything else that fails
//! ends with status 1, but for statuses of which a command's own help tells.

mod admin;
mod check;
mod cli;
mod image;
mod join;
mod logging;
mod memory;
mod net;
mod reset;
mod run;
mod scheduler;
mod settings;
mod store;
mod token;

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Write as _},
    process::ExitCode,
};

use clap::{CommandFactory as _, FromArgMatches as _};
use coracle_telemetry::ErrorChain;

use crate::cli::{Cli, Command};

/// `EX_USAGE` of sysexits.h.
const EXIT_USAGE: u8 = 64;

/// Why a command did not succeed.
enum Failure {
    /// A flag or value that cannot work: the caller's to mend.
    Usage(anyhow::Error),
    /// Anything else.
    Run(anyhow::Error),
    /// All is said; the status says the rest.
    Said(u8),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Run(error.into())
    }
}

fn main() -> ExitCode {
    memory::tune();
    let parsed = Cli::command()
        .try_get_matches()
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, join::given(&matches))));
    let (cli, given) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let _stream_may_be_closed = error.print();
            return if error.use_stderr() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match dispatch(cli, given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => {
            complain(&error);
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Run(error)) => {
            complain(&error);
            ExitCode::FAILURE
        }
        Err(Failure::Said(status)) => ExitCode::from(status),
    }
}

fn dispatch(cli: Cli, given: BTreeSet<&'static str>) -> Result<(), Failure> {
    logging::init(&cli.log).map_err(Failure::Usage)?;
    // rustls has more than one user here: say once which provider all of them take.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    match cli.command {
        Command::Up(args) => run::up(&args, given),
        Command::Server(args) => run::server(&args, given),
        Command::Agent(args) => run::agent(&args),
        Command::Scheduler(args) => scheduler::run(&args),
        Command::Why(args) => scheduler::why(&args),
        Command::Net(args) => net::run(&args),
        Command::Token(command) => token::run(command),
        Command::Image(command) => image::run(command),
        Command::Store(command) => store::run(command),
        Command::Check(args) => check::run(&args),
        Command::Reset(args) => reset::run(&args),
        Command::Version => {
            say(format_args!(
                "coracle {} (Kubernetes 1.37)",
                env!("CARGO_PKG_VERSION")
            ));
            Ok(())
        }
    }
}

/// The one place that writes a command's result. Who reads no further, such as `head`, has what it
/// wants.
fn say(line: std::fmt::Arguments<'_>) {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&anyhow::Error::new(error).context("write the result to standard output"));
            std::process::exit(1);
        }
        _ => {}
    }
}

#[allow(clippy::print_stderr, reason = "the last word of a failing program")]
fn complain(error: &anyhow::Error) {
    eprintln!("coracle: {}", ErrorChain(error.as_ref()));
}
