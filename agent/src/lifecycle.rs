//! Lifecycle hooks: what a container wants done after its start and before its end.

use std::{net::IpAddr, time::Duration};

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::{
    prober::http,
    runtime::{RuntimeService, types::ContainerId},
};

/// Runs a hook within `limit`.
///
/// # Errors
/// What went wrong, in the words of upstream's events.
pub(crate) async fn run(
    runtime: &dyn RuntimeService,
    id: &ContainerId,
    container: &Container,
    handler: &LifecycleHandler,
    pod_ip: Option<IpAddr>,
    limit: Duration,
) -> Result<(), String> {
    if let Some(action) = &handler.exec {
        let command = action.command.as_deref().unwrap_or_default();
        return match runtime.exec_sync(id, command, limit).await {
            Ok(result) if result.exit_code == 0 => Ok(()),
            Ok(result) => Err(format!(
                "command '{}' exited with {}: {}",
                command.join(" "),
                result.exit_code,
                String::from_utf8_lossy(&result.stderr)
                    .chars()
                    .take(1024)
                    .collect::<String>()
            )),
            Err(error) => Err(error.to_string()),
        };
    }
    if let Some(action) = &handler.http_get {
        let request = http::Request::new(action, container, pod_ip)?;
        return match tokio::time::timeout(limit, http::send(&request)).await {
            // As upstream: whatever was answered, it was called.
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("timed out".to_owned()),
        };
    }
    if let Some(action) = &handler.sleep {
        let wanted = Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0));
        tokio::time::sleep(wanted.min(limit)).await;
        return if wanted <= limit {
            Ok(())
        } else {
            Err("the grace period ended before the sleep did".to_owned())
        };
    }
    if handler.tcp_socket.is_some() {
        return Err("tcpSocket is not a hook".to_owned());
    }
    Err("no handler".to_owned())
}
