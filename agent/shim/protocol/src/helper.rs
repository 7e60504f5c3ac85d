//! What the shim and the OCI helper say to each other, and what a container is made of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Failure;

/// Longest message of why a program was not executed: what a pipe takes at once (`PIPE_BUF`), so
/// that it is written and read at once.
pub const START_ERROR_MAX_BYTES: usize = 4096;

/// `create.json`: what the helper makes a container of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateSpec {
    /// The OCI runtime spec but for what only the mounted image tells (user IDs). `root.path` and
    /// bind sources are filled in by the helper.
    pub spec: serde_json::Value,
    /// Image layers, lowest first.
    pub layers: Vec<PathBuf>,
    /// Writable layer.
    pub upper: PathBuf,
    /// Overlay's work directory, on the file system of `upper`.
    pub work: PathBuf,
    /// Volumes.
    pub mounts: Vec<VolumeMount>,
    /// Who the process runs as.
    pub user: UserRequest,
    /// The image's VOLUME paths: made as directories inside the root.
    pub volumes: Vec<String>,
    /// Device nodes of the image work.
    pub privileged: bool,
    /// Directory of compiled seccomp filters, shared by all pods of the node.
    pub compiled_filters: PathBuf,
}

/// A bind mount taken from the node's mount namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeMount {
    /// On the node.
    pub source: PathBuf,
    /// Inside.
    pub destination: String,
    /// Options for the OCI mount, such as `rbind`, `ro`, `rprivate`.
    pub options: Vec<String>,
}

/// Who the process runs as, before the image's `/etc/passwd` and `/etc/group` are read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UserRequest {
    /// The image's USER: `uid`, `name`, `uid:gid`, `name:group`.
    pub image_user: Option<String>,
    /// Overrides the user.
    pub uid: Option<u32>,
    /// Overrides the group.
    pub gid: Option<u32>,
    /// Refuse UID 0.
    pub non_root: bool,
    /// More groups.
    pub supplemental_groups: Vec<u32>,
    /// Leave out the groups that the image's `/etc/group` gives the user.
    #[serde(default)]
    pub strict_groups: bool,
}

/// What the shim asks of the helper, as the first message on the helper's descriptor 3.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HelperRequest {
    /// Mount, resolve, create; the process waits for "go". Descriptors 0 to 2 are the container's.
    Create {
        /// Where everything is.
        sandbox_dir: PathBuf,
        /// Its ID.
        container: String,
        /// A terminal in place of 0 to 2.
        tty: bool,
        /// Descriptor of the node's mount namespace.
        host_mount_namespace: i32,
        /// Descriptor of the PID namespace that is joined; a new one is made without.
        pid_namespace: Option<i32>,
        /// Descriptor to tell on why the program was not executed; the kernel closes it when it is.
        #[serde(default)]
        start_status: Option<i32>,
    },
    /// One more process. Descriptors 0 to 2 are its own.
    Exec {
        /// Where everything is.
        sandbox_dir: PathBuf,
        /// Its ID.
        container: String,
        /// Its first process, which the shim has not reaped.
        pid: i32,
        /// argv.
        args: Vec<String>,
        /// A terminal in place of 0 to 2.
        tty: bool,
    },
}

/// What the helper answers, once; with the terminal's master attached if there is one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HelperReply {
    /// The process is there.
    Made {
        /// PID in the node's namespace.
        pid: i32,
    },
    /// It is not, and nothing of it is left.
    Failed(Failure),
}
