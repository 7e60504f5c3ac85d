//! The CNI plugin `coracle-cni`: one call, one answer on stdout. All work is the library's.

#![forbid(unsafe_code)]

use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

use coracle_cni::skel::{Output, dispatch};

fn main() -> ExitCode {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("CNI_"))
        .collect();
    let mut stdin = Vec::new();
    if io::stdin()
        .take(MAX_CONFIG_BYTES)
        .read_to_end(&mut stdin)
        .is_err()
    {
        // An empty configuration fails with the specified error object.
        stdin.clear();
    }
    let (value, code) = match dispatch(&environment, &stdin) {
        Output::Success(None) => return ExitCode::SUCCESS,
        Output::Success(Some(value)) => (value, ExitCode::SUCCESS),
        Output::Failure(error) => (serde_json::json!(error), ExitCode::FAILURE),
    };
    match writeln!(io::stdout(), "{value}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Far more than any configuration.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
