//! `Create`: log, streams and namespace are ready before the helper runs; it answers when it is
//! done.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd},
    process::Stdio,
    time::Duration,
};

use coracle_shim_protocol::{Create, Failure, FailureKind, HelperRequest, layout};
use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    unistd::pipe2,
};

use super::{
    super::{
        container::{Container, State},
        failure,
        helper::{Helper, Purpose},
        log::Log,
        server::Server,
        start_status::StartStatus,
        streams::{AfterInput, Streams},
    },
    MAX_HELPER_MS,
};

impl Server {
    pub(super) fn create(
        &mut self,
        connection: u64,
        call: u64,
        create: Create,
    ) -> Result<(), Failure> {
        if self.shutdown.is_some() {
            return Err(failure(FailureKind::State, "the sandbox is shutting down"));
        }
        if self.find(&create.container).is_ok() {
            return Err(failure(
                FailureKind::State,
                format!("container {} exists", create.container),
            ));
        }
        let broken =
            |what: &str, error: io::Error| failure(FailureKind::Oci, format!("{what}: {error}"));
        let pid_namespace = self.pid_namespace(create.pid_namespace_of.as_deref())?;
        let log = Log::open(create.log_path.clone())
            .map_err(|error| broken(&format!("open log {}", create.log_path.display()), error))?;
        let (stdio, streams) = self
            .container_streams(&create)
            .map_err(|error| broken("make pipes", error))?;
        let (start_status, theirs) =
            StartStatus::new().map_err(|error| broken("make a pipe", error))?;
        let number = self.number();
        let request = HelperRequest::Create {
            sandbox_dir: self.directory.clone(),
            container: create.container.clone(),
            tty: create.tty,
            host_mount_namespace: self.host_mounts.as_raw_fd(),
            pid_namespace: pid_namespace.as_ref().map(AsRawFd::as_raw_fd),
            start_status: Some(StartStatus::number(&theirs)),
        };
        let purpose = Purpose::Create {
            connection,
            call,
            container: number,
            tty: create.tty,
            stdin: create.stdin.then(|| AfterInput::of(create.stdin_once)),
        };
        let limit = Duration::from_millis(create.timeout_ms.min(MAX_HELPER_MS));
        let helper = Helper::spawn(self.helper.as_fd(), &request, stdio, limit, purpose)
            .map_err(|error| broken("run the helper", error))?;
        self.helpers.push(helper);
        // From here on the name is taken: another create of it must not start while the helper
        // works.
        self.containers.insert(
            number,
            Container {
                directory: self
                    .directory
                    .join(layout::CONTAINERS)
                    .join(&create.container),
                id: create.container,
                cgroup: create.cgroup,
                log,
                streams,
                start_status,
                state: State::Creating,
            },
        );
        Ok(())
    }

    /// The PID namespace that a new container joins, open for its helper to inherit. Taken while
    /// its first process is an unreaped child of this one, so that the PID is no other's.
    fn pid_namespace(&self, of: Option<&str>) -> Result<Option<fs::File>, Failure> {
        let pid = match of {
            None => self.pid1,
            Some(id) => {
                let target = &self.containers[&self.find(id)?];
                let gone = || failure(FailureKind::State, format!("container {id} is not running"));
                Some(target.pid().ok_or_else(gone)?)
            }
        };
        let open = |pid: i32| {
            let file = fs::File::open(format!("/proc/{pid}/ns/pid"))?;
            fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(file)
        };
        let opened = pid.map(open).transpose();
        opened.map_err(|error: io::Error| {
            failure(
                FailureKind::Oci,
                format!("open the PID namespace to join: {error}"),
            )
        })
    }

    fn container_streams(&self, create: &Create) -> io::Result<([Stdio; 3], Streams)> {
        if create.tty {
            // The terminal's master comes with the helper's reply.
            return Ok((
                [Stdio::null(), Stdio::null(), Stdio::null()],
                Streams::default(),
            ));
        }
        let (out_read, out_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (err_read, err_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (stdin, feed) = if create.stdin {
            let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
            (Stdio::from(read), Some(write))
        } else {
            (Stdio::null(), None)
        };
        let streams = Streams::new(
            feed,
            AfterInput::of(create.stdin_once),
            [Some(out_read), Some(err_read)],
        )?;
        Ok((
            [stdin, Stdio::from(out_write), Stdio::from(err_write)],
            streams,
        ))
    }
}
