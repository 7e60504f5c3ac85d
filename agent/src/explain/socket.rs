//! The way from the program to the agent of its node: a socket in the run directory, for root.
//!
//! One connection, one question: a line of JSON each way. No authorization of the API is asked:
//! whoever is root on the node reads its rules anyway, and an answer is wanted most where no server
//! is reached.

use std::{
    fs::{self, File, Permissions},
    io,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{answer::Answer, gather::Gatherer, question::Question};

const NAME: &str = "net.sock";
/// A question has two names.
const LONGEST_QUESTION: u64 = 8 * 1024;
/// Of a hundred endpoints with their policies there is much to say.
const LONGEST_ANSWER: u64 = 64 * 1024 * 1024;
/// Answers that are made at a time: each looks at all Services.
const AT_A_TIME: usize = 2;
/// For a question to come and for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// As long as the program waits: longer than the agent takes at most.
const WAIT: Duration = Duration::from_secs(30);

type Reply = Result<Answer, String>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody listens.
    #[error(
        "ask the agent at {}: does it run here, with this --run-dir, and is this root?", path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// The connection broke.
    #[error("hear what the agent says")]
    Talk(#[source] io::Error),
    /// It says what no agent of this version says.
    #[error("read what the agent says: is it of another version?")]
    Read(#[source] serde_json::Error),
    /// It has no answer, and says why.
    #[error("{0}")]
    Unanswered(String),
}

/// Asks the agent whose run directory this is.
///
/// # Errors
/// [`AskError`].
pub async fn ask(run_dir: &Path, question: &Question) -> Result<Answer, AskError> {
    let connect = |source| AskError::Connect {
        path: run_dir.join(NAME),
        source,
    };
    let dir = File::open(run_dir).map_err(connect)?;
    let stream = UnixStream::connect(short(&dir)).await.map_err(connect)?;
    let answer = timeout(WAIT, talk(stream, question)).await;
    let answer = answer.map_err(|_| AskError::Talk(io::ErrorKind::TimedOut.into()))??;
    let reply: Reply = serde_json::from_slice(&answer).map_err(AskError::Read)?;
    reply.map_err(AskError::Unanswered)
}

async fn talk(mut stream: UnixStream, question: &Question) -> Result<Vec<u8>, AskError> {
    let mut line = serde_json::to_vec(question).map_err(AskError::Read)?;
    line.push(b'\n');
    stream.write_all(&line).await.map_err(AskError::Talk)?;
    let mut answer = Vec::new();
    let mut limited = stream.take(LONGEST_ANSWER);
    limited
        .read_to_end(&mut answer)
        .await
        .map_err(AskError::Talk)?;
    Ok(answer)
}

/// Whatever the length of the directory's path: that of a socket has 108 bytes at most.
fn short(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()))
}

/// Answers until `stop`.
///
/// # Errors
/// The socket cannot be made.
pub(crate) async fn serve(
    gatherer: Arc<Gatherer>,
    run_dir: PathBuf,
    stop: CancellationToken,
) -> io::Result<()> {
    let dir = File::open(&run_dir)?;
    let path = short(&dir);
    // Nobody else listens there: the agent has the directory's lock.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let (gatherer, places) = (Arc::clone(&gatherer), Arc::clone(&places));
                coracle_telemetry::spawn_in(&mut connections, "explain the network", async move {
                    if let Err(error) = answer(&gatherer, &places, stream).await {
                        tracing::debug!(error = %ErrorChain(&error), "a question about the network was not answered");
                    }
                });
            }
        }
    }
    fs::remove_file(&path)
}

async fn answer(gatherer: &Gatherer, places: &Semaphore, stream: UnixStream) -> io::Result<()> {
    // Between the socket's being made and its being closed to others somebody may have come.
    if stream.peer_cred()?.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let mut limited = (&mut stream).take(LONGEST_QUESTION);
    timeout(PATIENCE, limited.read_until(b'\n', &mut line)).await??;
    let reply: Reply = match serde_json::from_slice::<Question>(&line) {
        Err(error) => Err(format!("the agent does not read the question: {error}")),
        Ok(question) => {
            let _place = places.acquire().await.map_err(io::Error::other)?;
            gatherer.answer(question).await
        }
    };
    let reply = serde_json::to_vec(&reply)?;
    timeout(PATIENCE, stream.write_all(&reply)).await??;
    timeout(PATIENCE, stream.shutdown()).await?
}
