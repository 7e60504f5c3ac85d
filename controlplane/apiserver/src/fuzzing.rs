//! What strangers' bytes meet first, with what must hold for every one of them: for the fuzz
//! targets (feature `fuzzing`).
//!
//! Every function panics if something does not hold. Nothing here is part of the server.

use std::{
    io::{self, Read, Write},
    sync::LazyLock,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use coracle_api::channel::{self, Frame as Channel};
use coracle_auth::authn::{
    self, bootstrap_token,
    service_account::{self, TokenSigner},
    token_file,
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, WebSocket, protocol::Role};

use crate::{
    list_options::{ListOptions, ListVerb, Token},
    query::Query,
    request_info::RequestInfo,
    subresource::stream::{
        carrier,
        spdy::{
            error::FrameError,
            frame::{self, Decoder, Frame},
        },
    },
};

static SIGNER: LazyLock<TokenSigner> = LazyLock::new(|| {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    TokenSigner::new(&key.serialize_pem()).expect("a P-256 key")
});

/// What an admission webhook answers.
pub fn admission_review(answer: &[u8]) {
    coracle_admission::fuzzing::answer(answer);
}

/// What a conversion webhook answers.
pub fn conversion(answer: &[u8]) {
    coracle_registry::converter::fuzz(answer);
}

/// A continue token is refused or says the same when it is written again, and then the list's
/// parameters hold it.
pub fn continue_token(text: &str) {
    let Ok(token) = Token::decode(text) else {
        return;
    };
    let written = token.encode();
    assert_eq!(Token::decode(&written).expect("its own text"), token);
    let raw = format!("limit=1&continue={written}");
    let options = ListOptions::parse(&Query::parse(&raw), ListVerb::List).expect("parameters");
    assert_eq!(options.token.expect("a token"), token);
}

/// A query and a path are read without harm, and what is read of them is theirs.
pub fn request(text: &str) {
    let (path, raw) = text.split_once('?').unwrap_or((text, ""));
    let query = Query::parse(raw);
    let path = format!("/{}", path.trim_start_matches('/'));
    for method in [http::Method::GET, http::Method::POST, http::Method::DELETE] {
        if let RequestInfo::Resource(info) = RequestInfo::parse(&method, &path, &query) {
            assert!(
                info.namespace.len() <= path.len() && info.name.len() <= path.len() + raw.len()
            );
        }
    }
    for verb in [ListVerb::List, ListVerb::Watch] {
        let _ = ListOptions::parse(&query, verb);
    }
}

/// No text is a token of ours but one that we signed; claims that we signed are read without harm;
/// bootstrap tokens and token files as well.
pub fn token(text: &str) {
    if let Some(token) = authn::bearer(text) {
        assert!(!token.is_empty() && token.trim() == token);
    }
    assert_eq!(SIGNER.verify(text), None, "nobody has the key");
    if let Ok(claims) = serde_json::from_str::<Value>(text) {
        let signed = SIGNER.sign(&claims).expect("a token");
        assert_eq!(SIGNER.verify(&signed).as_ref(), Some(&claims));
        if let Some(subject) = service_account::subject(&claims, 1_000) {
            assert!(subject.expires_secs > 1_000, "{subject:?}");
            assert_eq!(claims["iss"], service_account::ISSUER);
        }
        // Another signature, and a header that asks for none.
        let forged = json!({"alg": "none"}).to_string();
        let (_, rest) = signed.split_once('.').expect("parts");
        assert_eq!(
            SIGNER.verify(&format!("{}.{rest}", BASE64_URL_SAFE_NO_PAD.encode(forged))),
            None
        );
        let now = jiff::Timestamp::UNIX_EPOCH;
        if let Some(user) = bootstrap_token::check(&claims, "abcdef", "0123456789abcdef", now) {
            assert_eq!(user.name, "system:bootstrap:abcdef");
            let is_fit = |group: &String| {
                group.starts_with("system:bootstrappers") || group == "system:authenticated"
            };
            assert!(user.groups.iter().all(is_fit), "{:?}", user.groups);
        }
    }
    if let Ok(users) = token_file::parse(text) {
        assert!(
            users.keys().all(|token| !token.is_empty()),
            "an empty token lets everybody in"
        );
    }
}

/// SPDY frames are the same however their bytes are cut, hold no more than the bytes that came, and
/// data comes back as it went.
pub fn spdy(bytes: &[u8]) {
    let (&cut, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let whole = frames([bytes].into_iter());
    let size = usize::from(cut).max(1);
    assert_eq!(whole, frames(bytes.chunks(size)), "cut every {size} bytes");
    let data: usize = whole
        .0
        .iter()
        .map(|frame| {
            if let Frame::Data { bytes, .. } = frame {
                bytes.len()
            } else {
                0
            }
        })
        .sum();
    assert!(data <= bytes.len(), "{data} bytes of {}", bytes.len());
    let written = frame::data(7, bytes, true);
    let expect = Frame::Data {
        stream: 7,
        bytes: bytes.to_vec().into(),
        fin: true,
    };
    assert_eq!(frames([&written[..]].into_iter()), (vec![expect], None));
}

/// Frames, pieces of data put together again, and why they ended.
fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = Decoder::new();
    let mut all: Vec<Frame> = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            let next = match decoder.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            };
            match (all.last_mut(), next) {
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
                (_, frame) => all.push(frame),
            }
        }
    }
    (all, None)
}

/// A connection that says this and then nothing.
struct Said<'a>(&'a [u8]);

impl Read for Said<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Messages of a WebSocket hold no more than the bytes that came; their channels come back as they
/// went.
pub fn websocket(bytes: &[u8]) {
    for role in [Role::Server, Role::Client] {
        let mut socket = WebSocket::from_raw_socket(Said(bytes), role, Some(carrier::config()));
        let mut said = 0;
        while let Ok(message) = socket.read() {
            let data = match message {
                Message::Binary(data) => data,
                Message::Text(text) => text.into(),
                _ => continue,
            };
            said += data.len();
            channels(&data);
            // What kubectl's port-forward tunnels.
            let _ = frames([&data[..]].into_iter());
        }
        assert!(said <= bytes.len(), "{said} bytes of {}", bytes.len());
    }
    channels(bytes);
}

fn channels(message: &[u8]) {
    let Some(frame) = Channel::read(message) else {
        return;
    };
    if let Channel::Data(channel, data) = frame {
        assert_eq!((channel, data.len() + 1), (message[0], message.len()));
        let _ = channel::terminal_size(data);
    }
    assert_eq!(Channel::read(&frame.write()), Some(frame));
}
