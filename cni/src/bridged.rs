//! Whether what pods of one bridge send each other passes the node's rules, as what comes from
//! elsewhere does: without, translations fail between them and policies do not hold.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use coracle_telemetry::ErrorChain;

use crate::{error::CniError, modprobe, sysctl};

/// One setting a family, of the calling thread's namespace.
const SETTINGS: [&str; 2] = ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"];
const MODULE: &str = "br_netfilter";

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bridged {
    /// It passes them.
    Filtered,
    /// It did not, and does now.
    Mended,
    /// The kernel cannot: a module is missing, for this reason.
    Unfiltered {
        /// Why it cannot be loaded, if that was tried.
        why: String,
    },
}

/// Has it pass them; `load` says whether the module is loaded for it, which takes a process.
///
/// # Errors
/// [`CniError::Io`]: it is off, and cannot be turned on.
pub fn ensure(load: bool) -> Result<Bridged, CniError> {
    let settings = SETTINGS.map(|name| Path::new("/proc/sys/net/bridge").join(name));
    // Built in or already loaded on most hosts.
    if let Some(outcome) = turn_on(&settings)? {
        return Ok(outcome);
    }
    let why = match load.then(|| modprobe::load(MODULE)) {
        None => "it is not loaded".to_owned(),
        Some(Err(error)) => ErrorChain(&error).to_string(),
        Some(Ok(())) => match turn_on(&settings)? {
            Some(outcome) => return Ok(outcome),
            None => "it is loaded, and not for this network namespace".to_owned(),
        },
    };
    Ok(Bridged::Unfiltered { why })
}

/// `None` if there are no settings.
fn turn_on(settings: &[PathBuf]) -> Result<Option<Bridged>, CniError> {
    let mut outcome = Bridged::Filtered;
    for setting in settings {
        match sysctl::set(setting, "1") {
            Ok(false) => {}
            Ok(true) => outcome = Bridged::Mended,
            Err(CniError::Io { source, .. }) if is_missing(&source) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(outcome))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn settings_are_turned_on_once_and_missed_where_they_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let settings = SETTINGS.map(|name| dir.path().join(name));
        assert_eq!(turn_on(&settings).unwrap(), None);
        for (before, expect) in [
            (["0\n", "1\n"], Bridged::Mended),
            (["1\n", "0\n"], Bridged::Mended),
            (["1\n", "1\n"], Bridged::Filtered),
        ] {
            for (setting, value) in settings.iter().zip(before) {
                fs::write(setting, value).unwrap();
            }
            assert_eq!(turn_on(&settings).unwrap(), Some(expect), "{before:?}");
            for setting in &settings {
                assert_eq!(fs::read_to_string(setting).unwrap().trim(), "1");
            }
        }
    }
}
