//! Logging: to standard error, as text for people or as JSON for machines. Spans that the filter
//! lets through are told of as they close, with the time that they took.

use anyhow::Context;
use tracing_subscriber::{
    EnvFilter, fmt::format::FmtSpan, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::cli::{LogArgs, LogFormat};

/// Filter directives that are added to (and override) the verbosity flags.
const FILTER_VARIABLE: &str = "CORACLE_LOG";

/// Sets up the process's one subscriber.
pub(crate) fn init(args: &LogArgs) -> anyhow::Result<()> {
    let default = match args.verbose {
        0 => "info,kube_client=warn,rustls=warn",
        1 => "debug,hyper=info,h2=info,rustls=info,tower=info,kube_client=info",
        _ => "trace",
    };
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(directives) => {
            EnvFilter::try_new(format!("{default},{directives}")).with_context(|| {
                format!("{FILTER_VARIABLE} {directives:?} is not a list of filter directives")
            })?
        }
        Err(_) => EnvFilter::new(default),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::CLOSE);
    match args.log_format {
        LogFormat::Text => {
            let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(layer.with_ansi(terminal)).try_init()
        }
        LogFormat::Json => registry.with(layer.json()).try_init(),
    }
    .context("set up logging")
}
