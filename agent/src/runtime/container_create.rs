//! `CreateContainer`: image and configuration become a spec, the shim's helper makes it real.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_shim_protocol::{Create, CreateSpec, Reply, Request, layout};
use coracle_telemetry::ErrorChain;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    ContainerConfig, ContainerId, ContainerState, Image, RuntimeError, SandboxConfig, SandboxId,
    SandboxState, SeccompProfile,
    checkpoint::{self, ContainerCheckpoint},
    container_remove,
    entries::{Container, Sandbox},
    erase,
    local::{Inner, make_private},
    oci_spec, sandbox_run,
    shim_client::ShimClient,
};

/// Mounting and libcontainer take milliseconds; a disk under pressure takes longer.
const CREATE_LIMIT: Duration = Duration::from_secs(60);

/// The shim gives up first, and cleans up.
const REPLY_SLACK: Duration = Duration::from_secs(5);

pub(super) async fn create(
    inner: &Arc<Inner>,
    sandbox_id: &SandboxId,
    config: ContainerConfig,
) -> Result<ContainerId, RuntimeError> {
    let sandbox = inner.sandbox(sandbox_id)?;
    if sandbox.checkpoint.lock().state != SandboxState::Ready {
        return Err(RuntimeError::Oci {
            operation: format!("create container {}", config.name),
            message: format!("sandbox {sandbox_id} is not ready"),
        });
    }
    let image = image(inner, &config).await?;
    let id = ContainerId(sandbox_run::random_id());
    let directory = sandbox.directory.join(layout::CONTAINERS).join(&id.0);
    let outcome = make(inner, &sandbox, &id, &directory, config, &image).await;
    if outcome.is_err() {
        if let Err(error) = erase::erase_container(inner, &id, &directory).await {
            tracing::warn!(container = %id, error = %ErrorChain(&error), "cannot clean up after a failed create");
        }
        inner.forget_container(&id);
    }
    outcome?;
    inner.tell(&sandbox.pod().uid);
    Ok(id)
}

async fn image(inner: &Inner, config: &ContainerConfig) -> Result<Image, RuntimeError> {
    let failed = |error: &dyn std::fmt::Display| RuntimeError::Oci {
        operation: format!("create container {}", config.name),
        message: error.to_string(),
    };
    let found = inner
        .images
        .image_status(&config.image_id)
        .await
        .map_err(|error| failed(&error))?;
    found.ok_or_else(|| failed(&format_args!("image {} is not present", config.image_id)))
}

async fn make(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    id: &ContainerId,
    directory: &Path,
    config: ContainerConfig,
    image: &Image,
) -> Result<(), RuntimeError> {
    let client = sandbox.client("create container")?;
    tell_of_clamped_score(inner, &config);
    let sandbox_config = sandbox.checkpoint.lock().config.clone();
    let writable = inner.writable_dir(id);
    let mut spec = plan(
        inner,
        sandbox,
        &sandbox_config,
        id,
        &writable,
        &config,
        image,
    )?;
    let stop_signal = stop_signal(
        config
            .stop_signal
            .as_deref()
            .or(image.config.stop_signal.as_deref()),
    )?;
    let log_path = log_path(&sandbox_config.log_directory, &config.log_path)?;

    make_private(directory).map_err(not_made(directory))?;
    let checkpoint = ContainerCheckpoint {
        config,
        created_at: SystemTime::now(),
        stop_signal,
    };
    // Before the writable layer: the next start finds what belongs to it.
    checkpoint::write_container(directory, &checkpoint)?;
    make_private(&writable).map_err(not_made(&writable))?;
    spec.layers = layers(inner, image, &writable, &checkpoint.config.name).await?;
    if let Some(parent) = log_path.parent() {
        fs::create_dir_all(parent).map_err(not_made(parent))?;
    }
    checkpoint::write(&directory.join(layout::CREATE), &spec)?;
    let request = request(
        id,
        &checkpoint.config,
        log_path,
        oci_spec::cgroup_path(&sandbox_config, &id.0),
    );
    let container = Arc::new(Container {
        id: id.clone(),
        sandbox: Arc::clone(sandbox),
        directory: directory.to_owned(),
        writable,
        syncs: inner.syncs.clone(),
        resources: Mutex::new(checkpoint.config.resources.clone()),
        checkpoint,
        state: watch::Sender::new(None),
    });
    // Before it is made: its end may be told before this function is heard of again.
    inner.insert_container(Arc::clone(&container));
    sandbox_run::hasten_moves(inner);
    let pid = ask_shim(&client, &container, request).await?;
    container.created();
    ensure_joined_target(inner, &container, pid).await
}

/// Once, by the first container that does not get the score it is to have.
fn tell_of_clamped_score(inner: &Inner, config: &ContainerConfig) {
    static TOLD: std::sync::Once = std::sync::Once::new();
    let lowest = inner.node.min_oom_score_adj;
    if config
        .resources
        .oom_score_adj
        .is_some_and(|wanted| wanted < lowest)
    {
        TOLD.call_once(|| {
            tracing::warn!(
                lowest,
                "no CAP_SYS_RESOURCE: oom_score_adj of containers is clamped"
            );
        });
    }
}

fn not_made(path: &Path) -> impl FnOnce(std::io::Error) -> RuntimeError + use<> {
    let path = path.to_owned();
    move |source| RuntimeError::State {
        operation: "make",
        path,
        source,
    }
}

/// The image's layers, which stay as long as the writable layer does.
async fn layers(
    inner: &Inner,
    image: &Image,
    writable: &Path,
    container: &str,
) -> Result<Vec<PathBuf>, RuntimeError> {
    let layers = inner.images.layers(&image.id, writable).await;
    layers.map_err(|error| RuntimeError::Oci {
        operation: format!("create container {container}"),
        message: ErrorChain(&error).to_string(),
    })
}

/// Has the shim make it; the PID of its process, which waits to be started.
async fn ask_shim(
    client: &ShimClient,
    container: &Container,
    request: Create,
) -> Result<i32, RuntimeError> {
    let name = &container.checkpoint.config.name;
    let answer = client
        .call(Request::Create(request), &[], CREATE_LIMIT + REPLY_SLACK)
        .await;
    match answer
        .map_err(|error| client.error("create container", name, error))?
        .reply
    {
        Reply::Created { pid } => Ok(pid),
        other => Err(RuntimeError::Oci {
            operation: format!("create container {name}"),
            message: format!("unexpected answer {other:?}"),
        }),
    }
}

fn request(
    id: &ContainerId,
    config: &ContainerConfig,
    log_path: PathBuf,
    cgroup: String,
) -> Create {
    Create {
        container: id.0.clone(),
        log_path,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        cgroup,
        timeout_ms: u64::try_from(CREATE_LIMIT.as_millis()).unwrap_or(u64::MAX),
        pid_namespace_of: config.security.debug_target.as_ref().map(|id| id.0.clone()),
    }
}

/// Removes and refuses a debugger that was made beside its target: a shim of an older release does
/// not know that one can be joined, and whoever debugs would look at nothing.
async fn ensure_joined_target(
    inner: &Arc<Inner>,
    container: &Container,
    pid: i32,
) -> Result<(), RuntimeError> {
    let outcome = compare_with_target(inner, container, pid);
    if outcome.is_err()
        && let Err(error) = container_remove::remove(inner, &container.id).await
    {
        tracing::warn!(container = %container.id, error = %ErrorChain(&error), "cannot remove a container that joined nothing");
    }
    outcome
}

fn compare_with_target(inner: &Inner, container: &Container, pid: i32) -> Result<(), RuntimeError> {
    let config = &container.checkpoint.config;
    let Some(target) = &config.security.debug_target else {
        return Ok(());
    };
    let target = inner.container(target)?;
    let failed = |message: String| RuntimeError::Oci {
        operation: format!("create container {}", config.name),
        message,
    };
    let name = &target.checkpoint.config.name;
    let state = target.state.borrow().clone();
    let Some(ContainerState::Running { pid: theirs, .. }) = state else {
        return Err(failed(format!("container {name} is not running")));
    };
    let proc = Path::new("/proc");
    if pid_namespace(proc, pid)? == pid_namespace(proc, theirs)? {
        return Ok(());
    }
    Err(failed(format!(
        "the pod was started by an older release, whose shim cannot join the processes of container {name}: \
         start the pod anew, or debug it without a target"
    )))
}

/// The PID namespace of a process as `proc` names it: `pid:[4026531836]`.
fn pid_namespace(proc: &Path, pid: i32) -> Result<PathBuf, RuntimeError> {
    fs::read_link(proc.join(pid.to_string()).join("ns/pid"))
        .map_err(|source| RuntimeError::PidNamespace { pid, source })
}

/// What the shim's helper will make, from everything that is known of it but the layers.
fn plan(
    inner: &Inner,
    sandbox: &Sandbox,
    sandbox_config: &SandboxConfig,
    id: &ContainerId,
    writable: &Path,
    config: &ContainerConfig,
    image: &Image,
) -> Result<CreateSpec, RuntimeError> {
    let profile = localhost_profile(config)?;
    let compiled_filters = inner.run_dir.join("seccomp");
    oci_spec::plan(&oci_spec::Input {
        sandbox: sandbox_config,
        sandbox_dir: &sandbox.directory,
        container: config,
        id: &id.0,
        image: &image.config,
        layers: Vec::new(),
        writable,
        localhost_profile: profile.as_deref(),
        compiled_filters: &compiled_filters,
        node: inner.node,
    })
    .map_err(|error| RuntimeError::InvalidConfig {
        message: ErrorChain(&error).to_string(),
    })
}

fn localhost_profile(config: &ContainerConfig) -> Result<Option<String>, RuntimeError> {
    match &config.security.seccomp {
        SeccompProfile::Localhost(path) => {
            fs::read_to_string(path)
                .map(Some)
                .map_err(|error| RuntimeError::InvalidConfig {
                    message: format!("cannot load seccomp profile {}: {error}", path.display()),
                })
        }
        _ => Ok(None),
    }
}

/// `SIGQUIT`, `QUIT` or `3`.
fn stop_signal(text: Option<&str>) -> Result<i32, RuntimeError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(Signal::SIGTERM as i32);
    };
    let upper = text.to_uppercase();
    let named = Signal::from_str(&upper).or_else(|_| Signal::from_str(&format!("SIG{upper}")));
    let signal = named.or_else(|error| {
        text.parse::<i32>()
            .map_err(|_| error)
            .and_then(Signal::try_from)
    });
    signal
        .map(|signal| signal as i32)
        .map_err(|_| RuntimeError::InvalidConfig {
            message: format!("unknown stop signal {text:?}"),
        })
}

/// Below the log directory, never beside it.
fn log_path(directory: &Path, relative: &str) -> Result<PathBuf, RuntimeError> {
    let plain = Path::new(relative)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    if relative.is_empty() || !plain {
        return Err(RuntimeError::InvalidConfig {
            message: format!("log path {relative:?} is not relative"),
        });
    }
    Ok(directory.join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_signals_are_names_or_numbers() {
        for (text, expected) in [
            (None, 15),
            (Some("SIGQUIT"), 3),
            (Some("quit"), 3),
            (Some("9"), 9),
            (Some(""), 15),
        ] {
            assert_eq!(stop_signal(text).unwrap(), expected, "{text:?}");
        }
        assert!(stop_signal(Some("SIGNOPE")).is_err());
    }

    #[test]
    fn a_debugger_in_a_namespace_of_its_own_is_noticed() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, namespace) in [(1, "pid:[1]"), (2, "pid:[2]"), (3, "pid:[2]")] {
            let directory = proc.path().join(pid.to_string()).join("ns");
            fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink(namespace, directory.join("pid")).unwrap();
        }
        let namespace = |pid| pid_namespace(proc.path(), pid);
        assert_eq!(namespace(2).unwrap(), namespace(3).unwrap());
        assert_ne!(namespace(1).unwrap(), namespace(2).unwrap());
        let gone = namespace(4).unwrap_err();
        let why = ErrorChain(&gone).to_string();
        assert!(
            why.starts_with("read the PID namespace of process 4: ") && why.contains("os error 2"),
            "{why}"
        );
    }

    #[test]
    fn log_path_stays_in_its_directory() {
        for (path, allowed) in [
            ("c/0.log", true),
            ("../x", false),
            ("/etc/passwd", false),
            ("", false),
            ("a/../../b", false),
        ] {
            assert_eq!(
                log_path(Path::new("/logs"), path).is_ok(),
                allowed,
                "{path:?}"
            );
        }
    }
}
