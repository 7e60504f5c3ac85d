use std::{io, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::{Compress, Compression, FlushCompress};
use futures::{SinkExt as _, StreamExt as _, channel::mpsc};
use proptest::prelude::*;

use super::{
    error::FrameError,
    frame::{self, Decoder, Frame},
    headers::{self, HeaderReader},
    session::{self, Incoming, Outgoing, Stream},
};

/// The client's side: frames as `spdystream` writes them.
struct Client(Compress);

impl Client {
    fn new() -> Self {
        Self::with_dictionary(&headers::dictionary())
    }

    fn with_dictionary(dictionary: &[u8]) -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(dictionary).unwrap();
        Self(compress)
    }

    fn block(&mut self, pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = BytesMut::new();
        plain.put_u32(u32::try_from(pairs.len()).unwrap());
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(u32::try_from(text.len()).unwrap());
            plain.extend_from_slice(text.as_bytes());
        }
        self.compress(&plain)
    }

    fn compress(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(plain.len() + 4096);
        self.0
            .compress_vec(plain, &mut block, FlushCompress::Sync)
            .unwrap();
        block
    }

    fn open(&mut self, stream: u32, pairs: &[(&str, &str)], fin: bool) -> Vec<u8> {
        let block = self.block(pairs);
        open_with(stream, &block, fin)
    }
}

fn control(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3, 0, u8::try_from(kind).unwrap(), flags];
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    frame.extend_from_slice(body);
    frame
}

fn open_with(stream: u32, block: &[u8], fin: bool) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend_from_slice(&[0; 6]);
    body.extend_from_slice(block);
    control(1, u8::from(fin), &body)
}

fn all(decoder: &mut Decoder) -> Result<Vec<Frame>, FrameError> {
    std::iter::from_fn(|| decoder.next().transpose()).collect()
}

/// What the frames say, whichever pieces data came in.
fn merged(frames: Vec<Frame>) -> Vec<Frame> {
    let mut merged: Vec<Frame> = Vec::new();
    for frame in frames {
        match (merged.last_mut(), frame) {
            (
                Some(Frame::Data {
                    stream,
                    bytes,
                    fin: end @ false,
                }),
                Frame::Data {
                    stream: next,
                    bytes: more,
                    fin,
                },
            ) if *stream == next => {
                *bytes = [&bytes[..], &more].concat().into();
                *end = fin;
            }
            (_, frame) => merged.push(frame),
        }
    }
    merged
}

fn pairs(pairs: &[(&str, &str)]) -> headers::Headers {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

const HEADERS: [(&str, &str); 3] = [("streamtype", "data"), ("port", "80"), ("requestid", "0")];

fn conversation() -> Vec<u8> {
    let mut client = Client::new();
    let mut bytes = client.open(1, &HEADERS, false);
    bytes.extend(client.open(3, &[("streamtype", "error"), ("port", "80")], true));
    bytes.extend_from_slice(&frame::data(1, &[7; 70_000], true));
    bytes.extend(control(6, 0, &9_u32.to_be_bytes()));
    bytes.extend(control(4, 0, &[0, 0, 0, 0]));
    bytes.extend(control(9, 0, &[0, 0, 0, 1, 0, 1, 0, 0]));
    bytes.extend(control(3, 0, &[0, 0, 0, 1, 0, 0, 0, 5]));
    bytes.extend(client.open(5, &HEADERS, false));
    bytes.extend(control(7, 0, &[0; 8]));
    bytes
}

fn said() -> Vec<Frame> {
    let open = |stream, headers, fin| Frame::Open {
        stream,
        headers,
        fin,
    };
    vec![
        open(1, pairs(&HEADERS), false),
        open(3, pairs(&[("streamtype", "error"), ("port", "80")]), true),
        Frame::Data {
            stream: 1,
            bytes: vec![7; 70_000].into(),
            fin: true,
        },
        Frame::Ping(9),
        Frame::Ignored,
        Frame::Ignored,
        Frame::Reset { stream: 1 },
        open(5, pairs(&HEADERS), false),
        Frame::GoAway,
    ]
}

#[test]
fn dictionary_is_the_protocols() {
    let mut compress = Compress::new(Compression::fast(), true);
    assert_eq!(
        compress.set_dictionary(&headers::dictionary()).unwrap(),
        0xe3c6_a7c2
    );
}

#[test]
fn frames_of_a_client_are_read() {
    let mut decoder = Decoder::new();
    decoder.push(&conversation());
    assert_eq!(merged(all(&mut decoder).unwrap()), said());
}

#[test]
fn cut_frames_wait_for_their_rest() {
    let bytes = conversation();
    for size in [1, 2, 3, 7, 8, 9, 100, 4096] {
        let mut decoder = Decoder::new();
        let mut frames = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            frames.extend(all(&mut decoder).unwrap());
        }
        assert_eq!(merged(frames), said(), "pieces of {size}");
    }
}

#[test]
fn a_client_reads_the_replies() {
    let mut reader = HeaderReader::new();
    for (stream, is_first) in [(1, true), (3, false), (5, false)] {
        let frame = frame::reply(stream, is_first);
        let length = usize::from(frame[6]) << 8 | usize::from(frame[7]);
        assert_eq!(
            (&frame[..4], frame.len()),
            (&[0x80, 3, 0, 2][..], 8 + length)
        );
        assert_eq!(frame[8..12], stream.to_be_bytes());
        assert_eq!(reader.read(&frame[12..]), Ok(Vec::new()), "reply {stream}");
    }
}

#[test]
fn what_is_no_spdy_is_refused() {
    let check = |bytes: &[u8], expect: FrameError| {
        let mut decoder = Decoder::new();
        decoder.push(bytes);
        assert_eq!(
            all(&mut decoder),
            Err(expect),
            "{:?}",
            &bytes[..bytes.len().min(40)]
        );
    };
    check(&[0x80, 2, 0, 1, 0, 0, 0, 0], FrameError::Version(2));
    check(&control(12, 0, &[]), FrameError::UnknownType(12));
    check(
        &[0x80, 3, 0, 1, 0, 1, 0, 0],
        FrameError::ControlTooLarge(0x1_0000),
    );
    check(&control(1, 0, &[0, 0, 0, 1]), FrameError::Cut);
    check(&control(3, 0, &[1]), FrameError::Cut);
    check(
        &Client::new().open(2, &HEADERS, false),
        FrameError::StreamId(2),
    );
    check(
        &Client::new().open(0, &HEADERS, false),
        FrameError::StreamId(0),
    );
    check(&open_with(1, b"nonsense", false), FrameError::Compression);
    check(
        &Client::with_dictionary(b"another").open(1, &HEADERS, false),
        FrameError::WrongDictionary,
    );
    let mut client = Client::new();
    let twice = [
        client.open(1, &HEADERS, false),
        client.open(1, &HEADERS, false),
    ]
    .concat();
    check(&twice, FrameError::StreamId(1));
}

#[test]
fn headers_that_lie_are_refused() {
    let check = |plain: &[u8], expect: FrameError| {
        let block = Client::new().compress(plain);
        assert_eq!(
            HeaderReader::new().read(&block),
            Err(expect),
            "{:?}",
            &plain[..plain.len().min(40)]
        );
    };
    check(&[0, 0, 0, 1], FrameError::Headers);
    check(
        &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, b'a'],
        FrameError::Headers,
    );
    check(&[0, 0, 0, 0, 9], FrameError::Headers);
    check(&[0xff, 0xff, 0xff, 0xff], FrameError::HeadersTooLarge);
    check(
        &[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0],
        FrameError::Headers,
    );
    // A bomb: a megabyte in a thousand bytes.
    check(&vec![0; 1 << 20], FrameError::HeadersTooLarge);
}

proptest! {
    #[test]
    fn anything_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..2000), size in 1..600_usize) {
        let mut decoder = Decoder::new();
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            if all(&mut decoder).is_err() {
                return Ok(());
            }
        }
    }

    #[test]
    fn nearly_right_frames_may_come(at in 0..400_usize, byte in any::<u8>()) {
        let mut bytes = conversation();
        bytes[at] = byte;
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        let _ = all(&mut decoder);
    }

    #[test]
    fn data_comes_back_as_it_went(bytes in proptest::collection::vec(any::<u8>(), 0..100_000), fin in any::<bool>()) {
        let mut decoder = Decoder::new();
        decoder.push(&frame::data(7, &bytes, fin));
        let frames = merged(all(&mut decoder).unwrap());
        prop_assert_eq!(frames, [Frame::Data { stream: 7, bytes: bytes.into(), fin }]);
    }
}

/// Both ends of a connection in memory: what the client sends, and what it gets.
fn wire() -> (
    mpsc::Sender<io::Result<Bytes>>,
    Incoming,
    Outgoing,
    mpsc::Receiver<Bytes>,
) {
    let (to, incoming) = mpsc::channel(4);
    let (outgoing, from) = mpsc::channel(4);
    (
        to,
        incoming.boxed(),
        Box::pin(outgoing.sink_map_err(io::Error::other)),
        from,
    )
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what)
        .await
        .expect("in time")
}

#[tokio::test]
async fn streams_carry_bytes_both_ways_and_end() {
    let (mut to, incoming, outgoing, from) = wire();
    let (mut streams, run) = session::serve(incoming, outgoing);
    let run = coracle_telemetry::spawn("task of a test", run);
    let mut client = Client::new();
    to.send(Ok(client.open(1, &HEADERS, false).into()))
        .await
        .unwrap();
    to.send(Ok(frame::data(1, b"hello", true))).await.unwrap();
    to.send(Ok(control(6, 0, &1_u32.to_be_bytes()).into()))
        .await
        .unwrap();
    let Stream {
        mut incoming,
        outgoing,
        ..
    } = soon(streams.recv()).await.expect("a stream");
    assert_eq!(soon(incoming.recv()).await.as_deref(), Some(&b"hello"[..]));
    assert_eq!(soon(incoming.recv()).await, None);
    outgoing.finish(b"bye").await;
    drop((streams, incoming));
    // Nobody is left: after everything is sent, the connection is closed, and ends with the client.
    let sent = soon(from.collect::<Vec<_>>()).await.concat();
    to.send(Ok(control(6, 0, &3_u32.to_be_bytes()).into()))
        .await
        .unwrap();
    assert!(!run.is_finished());
    drop(to);
    assert!(soon(run).await.is_ok());
    let expect = [
        frame::reply(1, true),
        frame::ping(1),
        frame::data(1, b"bye", true),
    ]
    .concat();
    assert_eq!(sent, expect);
}

#[tokio::test]
async fn a_client_that_goes_resets_its_streams() {
    let (mut to, incoming, outgoing, _from) = wire();
    let (mut streams, run) = session::serve(incoming, outgoing);
    coracle_telemetry::spawn("task of a test", run);
    to.send(Ok(Client::new().open(1, &HEADERS, true).into()))
        .await
        .unwrap();
    let mut stream = soon(streams.recv()).await.expect("a stream");
    assert_eq!(stream.header("port"), Some("80"));
    assert_eq!(soon(stream.incoming.recv()).await, None);
    drop(to);
    soon(stream.reset.cancelled()).await;
    assert!(soon(streams.recv()).await.is_none());
}

#[tokio::test]
async fn too_many_streams_are_refused() {
    let (mut to, incoming, outgoing, from) = wire();
    let (mut streams, run) = session::serve(incoming, outgoing);
    coracle_telemetry::spawn("task of a test", run);
    coracle_telemetry::spawn("task of a test", async move {
        let mut client = Client::new();
        for number in 0..600 {
            to.send(Ok(client.open(number * 2 + 1, &HEADERS, false).into()))
                .await
                .unwrap();
        }
        std::future::pending::<()>().await;
    });
    let held = coracle_telemetry::spawn("task of a test", async move {
        let mut held = Vec::new();
        while let Some(stream) = streams.recv().await {
            held.push(stream);
        }
    });
    // Kind of the frame: 3 is RST_STREAM.
    let refused = from
        .filter(|frame| std::future::ready(frame[3] == 3))
        .take(88)
        .collect::<Vec<_>>();
    assert_eq!(soon(refused).await.len(), 600 - 512);
    held.abort();
}
