//! What an error is told as, by its variant.

use std::io::ErrorKind;

use super::*;

fn layer() -> String {
    "sha256:a".to_owned()
}

/// As the archive reader hands on what the reader below it says.
fn through_a_tar(error: io::Error) -> io::Error {
    let mut archive = tar::Archive::new(Failing(Some(error)));
    let entry = archive.entries().expect("entries").next().expect("one");
    entry.err().expect("an error")
}

struct Failing(Option<io::Error>);

impl io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

#[test]
fn a_bound_is_told_through_every_reader() {
    for bound in [TooLarge::Announced(5), TooLarge::Accepted, TooLarge::Behind] {
        let read = through_a_tar(bound.into());
        let error = LayerError::unpack(layer(), UnpackError::Archive(read));
        assert!(
            matches!(&error, LayerError::TooLarge { source, .. } if *source == bound),
            "{error:?}"
        );
        assert_eq!(
            ErrorChain(&error).to_string(),
            format!("layer sha256:a is too large: {bound}")
        );
    }
    let read = through_a_tar(ErrorKind::InvalidData.into());
    assert!(matches!(
        LayerError::read(layer(), read),
        LayerError::Read { .. }
    ));
}

#[test]
fn a_full_disk_is_told_from_a_bad_archive() {
    let entry = |source: io::Error| {
        let entry = UnpackError::Entry {
            operation: "write",
            path: "etc/x".into(),
            source,
        };
        LayerError::unpack(layer(), entry)
    };
    // ENOSPC, EDQUOT, and what the node keeps free.
    for full in [
        io::Error::from_raw_os_error(28),
        io::Error::from_raw_os_error(122),
        ErrorKind::StorageFull.into(),
    ] {
        let error = entry(full);
        assert!(matches!(error, LayerError::DiskFull { .. }), "{error:?}");
    }
    let error = entry(io::Error::from_raw_os_error(28));
    assert_eq!(
        ErrorChain(&error).to_string(),
        "no room on the disk for layer sha256:a: write \"etc/x\": No space left on device (os error 28)"
    );
    let error = entry(ErrorKind::InvalidData.into());
    assert!(matches!(error, LayerError::Unpack { .. }), "{error:?}");
}
