//! Joins two connections byte for byte, and loses nothing that one side said before it ended.
//!
//! The API server does it between a client and a node, the agent between the API server and a pod.
//! Both have a port that anybody reaches: [`Connections`] says who goes when there are too many,
//! [`Peer`] when one is gone. [`Counted`] is for others who choose by another rule.
//!
//! Not tokio's `copy_bidirectional`: that drops what it holds when a read fails, and ends both
//! directions when one fails. A node that ends its connection without TLS' own farewell, or a
//! client's ping that comes too late, would so cost the last bytes of a command's output.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")
)]

mod connections;
mod counted;
mod peer;

use std::time::Duration;

pub use connections::{Connections, Slot};
pub use counted::Counted;
pub use peer::Peer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const PIECE: usize = 32 * 1024;
/// For the client to end its side, once it has got everything: it may be slow to take what is on
/// its way. Closing earlier with unread bytes of its would make the kernel forget what it has not
/// taken.
const LINGER: Duration = Duration::from_secs(600);

/// Copies both ways until the backend ends and the client has got it all, or the client goes.
pub async fn relay(client: impl AsyncRead + AsyncWrite, backend: impl AsyncRead + AsyncWrite) {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_backend, to_backend) = tokio::io::split(backend);
    let (forth, mut back) = (
        feed(from_client, to_backend),
        Box::pin(copy(from_backend, to_client)),
    );
    let mut forth = Box::pin(forth);
    tokio::select! {
        delivered = &mut back => if delivered.is_ok() {
            let _ = tokio::time::timeout(LINGER, forth).await;
        },
        () = &mut forth => {
            let _ = back.await;
        }
    }
}

/// The client's bytes. A backend that takes no more is no reason to leave them unread.
async fn feed(mut reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin) {
    if copy(&mut reader, writer).await.is_err() {
        let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
    }
}

/// Until the reader's end, which is handed on; a reader's failure is an end, too.
///
/// # Errors
/// The writer takes no more.
async fn copy(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        writer.write_all(&buffer[..read]).await?;
        writer.flush().await?;
    }
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::{DuplexStream, ReadBuf, duplex};

    use super::*;

    /// A backend that says this, piece by piece, and then fails: as TLS does without a farewell.
    struct Abrupt(Vec<Vec<u8>>, bool);

    impl AsyncRead for Abrupt {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.0.pop() {
                Some(piece) => buffer.put_slice(&piece),
                None => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Abrupt {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let outcome = if self.1 {
                Ok(bytes.len())
            } else {
                Err(io::ErrorKind::ConnectionReset.into())
            };
            Poll::Ready(outcome)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn relayed(pieces: &[usize], takes_input: bool, chatter: &[u8]) -> usize {
        let (client, mut ours): (_, DuplexStream) = duplex(1024);
        let backend = Abrupt(
            pieces.iter().map(|length| vec![7; *length]).collect(),
            takes_input,
        );
        ours.write_all(chatter).await.unwrap();
        let relaying = tokio::spawn(relay(client, backend));
        // A client that is slower than the backend.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let mut got = Vec::new();
        ours.read_to_end(&mut got).await.unwrap();
        drop(ours);
        relaying.await.unwrap();
        got.len()
    }

    #[tokio::test]
    async fn backend_that_breaks_off_is_heard_to_its_last_byte() {
        for pieces in [
            &[1_833][..],
            &[1, 1_833],
            &[5_000, 1_833, 32_000, 3, 1_023, 1_024, 1_025],
        ] {
            for chatter in [&b""[..], b"ping"] {
                for takes_input in [true, false] {
                    let expect: usize = pieces.iter().sum();
                    assert_eq!(
                        relayed(pieces, takes_input, chatter).await,
                        expect,
                        "{pieces:?} {takes_input}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn ends_are_handed_on_one_at_a_time() {
        let (client, mut ours) = duplex(64);
        let (backend, mut theirs) = duplex(64);
        let relaying = tokio::spawn(relay(client, backend));
        ours.write_all(b"question").await.unwrap();
        ours.shutdown().await.unwrap();
        let mut asked = String::new();
        theirs.read_to_string(&mut asked).await.unwrap();
        theirs.write_all(b"answer").await.unwrap();
        drop(theirs);
        let mut answered = String::new();
        ours.read_to_string(&mut answered).await.unwrap();
        relaying.await.unwrap();
        assert_eq!((asked.as_str(), answered.as_str()), ("question", "answer"));
    }

    #[tokio::test]
    async fn backend_is_heard_to_its_last_byte_though_it_hears_nothing() {
        for length in [1, 1_833, 8_193, 100_000] {
            let (client, mut ours) = duplex(1024);
            let (backend, mut theirs) = duplex(512);
            let relaying = tokio::spawn(relay(client, backend));
            let says = tokio::spawn(async move {
                theirs
                    .write_all(&vec![7; length])
                    .await
                    .expect("it is read");
                // Gone, and with it what the peer still says.
            });
            for _ in 0..20 {
                let _ = ours.write_all(b"ping").await;
                tokio::task::yield_now().await;
            }
            let mut got = Vec::new();
            ours.read_to_end(&mut got).await.expect("it is ended");
            drop(ours);
            says.await.expect("said");
            relaying.await.expect("relaying");
            assert_eq!(got.len(), length);
        }
    }
}
