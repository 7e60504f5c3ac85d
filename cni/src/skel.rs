//! A plugin call as the specification has it: `CNI_*` variables and stdin in; result or error
//! object out.
//!
//! Pure but for [`dispatch`]; reading the environment and printing is `main`'s.

use std::{collections::HashMap, path::PathBuf};

use serde_json::Value;

use crate::{
    cmd::{self, Attachment},
    conf::{DEFAULT_VERSION, MAX_LINK_NAME, NetConf},
    error::{CniError, WireError},
};

/// What a call prints and whether it succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Exit code 0; nothing is printed without a value.
    Success(Option<Value>),
    /// Exit code 1.
    Failure(WireError),
}

/// Carries one call out. Blocks.
#[must_use]
pub fn dispatch(environment: &HashMap<String, String>, stdin: &[u8]) -> Output {
    let asked = serde_json::from_slice::<Value>(stdin)
        .ok()
        .and_then(|conf| {
            conf.get("cniVersion")
                .and_then(Value::as_str)
                .map(str::to_owned)
        });
    match call(environment, stdin, asked.as_deref()) {
        Ok(value) => Output::Success(value),
        Err(error) => Output::Failure(error.to_wire(asked.as_deref().unwrap_or(DEFAULT_VERSION))),
    }
}

fn call(
    environment: &HashMap<String, String>,
    stdin: &[u8],
    asked: Option<&str>,
) -> Result<Option<Value>, CniError> {
    let command = required(environment, "CNI_COMMAND")?;
    match command {
        "VERSION" => Ok(Some(cmd::version::version(asked))),
        "ADD" => {
            let attachment = attachment(environment, true)?;
            let result = cmd::add(&attachment, &NetConf::parse(stdin)?)?;
            serde_json::to_value(result)
                .map(Some)
                .map_err(CniError::Decode)
        }
        "DEL" => cmd::del(&attachment(environment, false)?, &NetConf::parse(stdin)?).map(|()| None),
        "CHECK" => {
            cmd::check(&attachment(environment, true)?, &NetConf::parse(stdin)?).map(|()| None)
        }
        "GC" => cmd::gc(&NetConf::parse(stdin)?).map(|()| None),
        // Everything that an ADD needs is made by the ADD.
        "STATUS" => NetConf::parse(stdin).map(|_| None),
        other => Err(CniError::InvalidEnvironment {
            name: "CNI_COMMAND",
            why: format!("unknown command {other:?}"),
        }),
    }
}

fn attachment(
    environment: &HashMap<String, String>,
    netns_required: bool,
) -> Result<Attachment, CniError> {
    let container_id = required(environment, "CNI_CONTAINERID")?;
    let mut bytes = container_id.bytes();
    let valid = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if !valid {
        let why =
            format!("{container_id:?} has other characters than letters, digits, '_', '.', '-'");
        return Err(CniError::InvalidEnvironment {
            name: "CNI_CONTAINERID",
            why,
        });
    }
    let ifname = required(environment, "CNI_IFNAME")?;
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if ifname.len() > MAX_LINK_NAME || matches!(ifname, "." | "..") || ifname.contains(bad) {
        let why = format!("{ifname:?} is no link name");
        return Err(CniError::InvalidEnvironment {
            name: "CNI_IFNAME",
            why,
        });
    }
    let netns = environment
        .get("CNI_NETNS")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    if netns_required && netns.is_none() {
        required(environment, "CNI_NETNS")?;
    }
    Ok(Attachment {
        container_id: container_id.to_owned(),
        ifname: ifname.to_owned(),
        netns,
    })
}

fn required<'a>(
    environment: &'a HashMap<String, String>,
    name: &'static str,
) -> Result<&'a str, CniError> {
    match environment.get(name) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(CniError::InvalidEnvironment {
            name,
            why: "required variable missing".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str =
        r#"{"cniVersion":"1.0.0","name":"n","type":"coracle-cni","ipam":{"subnet":"10.1.0.0/24"}}"#;

    fn run(variables: &[(&str, &str)], stdin: &str) -> Output {
        let environment = variables
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        dispatch(&environment, stdin.as_bytes())
    }

    #[test]
    fn version_lists_what_is_spoken() {
        let Output::Success(Some(value)) =
            run(&[("CNI_COMMAND", "VERSION")], r#"{"cniVersion":"0.4.0"}"#)
        else {
            panic!("VERSION failed");
        };
        assert_eq!(value["cniVersion"], "0.4.0");
        assert_eq!(
            value["supportedVersions"],
            serde_json::json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
        );
    }

    #[test]
    fn bad_calls_have_the_specified_codes() {
        let id = ("CNI_CONTAINERID", "c1");
        let ifname = ("CNI_IFNAME", "eth0");
        let netns = ("CNI_NETNS", "/nonexistent/ns");
        let add = ("CNI_COMMAND", "ADD");
        type Variables<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Variables<'_>, &str, u32); 8] = [
            (&[], CONF, 4),
            (&[("CNI_COMMAND", "NOPE")], CONF, 4),
            (&[add, ifname, netns], CONF, 4),
            (&[add, id, netns], CONF, 4),
            (&[add, id, ifname], CONF, 4),
            (&[add, ("CNI_CONTAINERID", "../c"), ifname, netns], CONF, 4),
            (&[add, id, ifname, netns], "{", 6),
            (&[add, id, ifname, netns], CONF, 3),
        ];
        for (variables, stdin, code) in cases {
            let Output::Failure(error) = run(variables, stdin) else {
                panic!("{variables:?} succeeded")
            };
            assert_eq!(error.code, code, "{variables:?}: {}", error.msg);
        }
    }
}
