//! What a node reads of strangers, with what must hold for all of it: for the fuzz targets (feature
//! `fuzzing`).
//!
//! Every function panics if something does not hold. Files are made in one directory below
//! `$TMPDIR` with a name that is always the same, so that a run can be repeated. Nothing here is
//! part of the agent.

pub(crate) mod directory;

use std::{fs, path::Path};

use self::directory::directory;
pub use crate::{
    image::fuzzing::{
        image_archive, image_documents, image_layer, image_reference, registry_challenge,
    },
    network::cni::fuzzing::{cni_configuration, cni_result},
};
use crate::{
    join::token,
    logs::{
        last_words,
        read::{LogReader, Options},
    },
};

/// A join token is refused, or the same when it is written again.
pub fn join_token(text: &str) {
    let Ok(found) = token::parse(text) else {
        return;
    };
    let written = coracle_trust::token::join(found.ca_hash, &found.bearer);
    assert!(written.eq_ignore_ascii_case(text.trim()), "{written}");
}

/// Whatever a log holds, its tail is its end, a limit cuts it, and each line is of one stream.
pub fn log(bytes: &[u8]) {
    let (&figure, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let figure = usize::from(figure);
    let path = directory().join("0.log");
    fs::write(&path, bytes).expect("a log");
    let all = read(&path, Options::default());
    assert!(
        all.len() <= bytes.len(),
        "{} bytes of {}",
        all.len(),
        bytes.len()
    );
    assert!(all.ends_with(&read(
        &path,
        Options {
            tail_lines: Some(figure),
            ..Options::default()
        }
    )));
    let limited = read(
        &path,
        Options {
            limit_bytes: Some(figure as u64),
            ..Options::default()
        },
    );
    assert_eq!(limited, all[..figure.min(all.len())]);
    let of = |stderr| {
        read(
            &path,
            Options {
                only_stderr: Some(stderr),
                ..Options::default()
            },
        )
        .len()
    };
    assert_eq!(of(true) + of(false), all.len());
    let since = Options {
        since: Some(std::time::UNIX_EPOCH),
        timestamps: true,
        ..Options::default()
    };
    assert!(read(&path, since).len() <= bytes.len());
    if let Some(words) = last_words(&path, 3, figure) {
        assert!(
            (1..=figure).contains(&words.len()),
            "{} bytes of {figure}",
            words.len()
        );
    }
}

fn read(path: &Path, options: Options) -> Vec<u8> {
    let mut reader = LogReader::open(path.to_owned(), options).expect("a log");
    let mut all = Vec::new();
    while let Some(piece) = reader.next_piece().expect("read") {
        all.extend_from_slice(&piece);
    }
    all
}
