//! What a process gives up before its program runs: privileges by capability, system calls by
//! filter.
//!
//! Not left to libcontainer, which compiles the filter anew for every container. Decided once, when
//! the container is made; `kubectl exec` confines its process in the same way.

use std::{fs, path::Path};

use anyhow::Context;
use libcontainer::{capabilities, syscall::syscall::create_syscall};
use oci_spec::runtime::{LinuxCapabilities, Process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seccomp::Filter;

/// In a container's directory.
const FILE: &str = "confinement.json";
const FILTER: &str = "seccomp.bpf";

/// See the module's description.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Confinement {
    capabilities: Option<LinuxCapabilities>,
    #[serde(skip)]
    pub(super) no_new_privileges: bool,
    filtered: bool,
    #[serde(skip)]
    filter: Option<Filter>,
}

impl Confinement {
    /// Takes its part out of the spec, so that libcontainer leaves it alone.
    pub(super) fn take(spec: &mut Value, compiled_filters: &Path) -> anyhow::Result<Self> {
        let profile = spec["linux"]
            .as_object_mut()
            .and_then(|linux| linux.remove("seccomp"));
        let process = spec["process"]
            .as_object_mut()
            .context("spec without process")?;
        let capabilities = process
            .remove("capabilities")
            .map(serde_json::from_value)
            .transpose()?;
        let no_new_privileges = process
            .get("noNewPrivileges")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let filter = profile
            .map(|profile| Filter::obtain(&profile, compiled_filters))
            .transpose()?;
        Ok(Self {
            capabilities,
            no_new_privileges,
            filtered: filter.is_some(),
            filter,
        })
    }

    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        if let Some(filter) = &self.filter {
            fs::write(directory.join(FILTER), filter.encode())
                .context("write the seccomp filter")?;
        }
        fs::write(directory.join(FILE), serde_json::to_vec(self)?).context("write the confinement")
    }

    /// That of the container in `directory`, whose spec says `process`.
    pub(super) fn read(directory: &Path, process: &Process) -> anyhow::Result<Self> {
        let bytes = fs::read(directory.join(FILE)).context("read the container's confinement")?;
        let mut found: Self = serde_json::from_slice(&bytes)?;
        found.no_new_privileges = process.no_new_privileges().unwrap_or(false);
        if found.filtered {
            let bytes =
                fs::read(directory.join(FILTER)).context("read the container's seccomp filter")?;
            found.filter =
                Some(Filter::decode(&bytes).context("the container's seccomp filter is damaged")?);
        }
        Ok(found)
    }

    /// Cuts capabilities. The user is set already, with all capabilities kept.
    pub(super) fn drop_privileges(&self) -> anyhow::Result<()> {
        if !self.no_new_privileges {
            // Needs CAP_SYS_ADMIN, which is dropped next.
            self.load()?;
        }
        let syscall = create_syscall();
        capabilities::reset_effective(syscall.as_ref())?;
        if let Some(capabilities) = &self.capabilities {
            capabilities::drop_privileges(capabilities, syscall.as_ref())?;
        }
        Ok(())
    }

    /// The very last step: with `no_new_privs` the filter need not allow anything of the above.
    pub(super) fn seal(&self) -> anyhow::Result<()> {
        if self.no_new_privileges {
            self.load()
        } else {
            Ok(())
        }
    }

    fn load(&self) -> anyhow::Result<()> {
        self.filter.as_ref().map_or(Ok(()), |filter| {
            filter.load().context("load the seccomp filter")
        })
    }
}
