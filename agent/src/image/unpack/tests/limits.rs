//! What a stream says of itself bounds nothing: memory and disk are bounded all the same.

use tokio_util::sync::CancellationToken;

use super::{
    super::super::{
        blob::Metered,
        error::{LayerError, TooLarge},
    },
    *,
};

#[test]
fn a_broken_archive_is_an_error_not_a_panic() {
    let place = Place::new();
    let error = unpack(
        &b"garbage that is no tar header but longer than nothing"[..],
        &place.root(),
        None,
    );
    assert!(matches!(error, Err(UnpackError::Archive(_))), "{error:?}");
}

/// Endless zeros after a header that announces them.
fn announcing(kind: EntryType, size: u64) -> impl Read {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..4].copy_from_slice(b"name");
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    io::Cursor::new(header.as_bytes().to_vec()).chain(Counted(0))
}

/// Fails the test when it is read far beyond what any header may hold.
struct Counted(u64);

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0 += buf.len() as u64;
        assert!(
            self.0 < 64 << 20,
            "a header was read into memory without bound"
        );
        buf.fill(b'x');
        Ok(buf.len())
    }
}

#[test]
fn extension_records_are_bounded() {
    for kind in [
        EntryType::XHeader,
        EntryType::GNULongName,
        EntryType::GNULongLink,
    ] {
        for size in [3 << 20, 1 << 32, 1 << 50] {
            let place = Place::new();
            let error = unpack(announcing(kind, size), &place.root(), None).expect_err("refused");
            assert!(
                matches!(error, UnpackError::Archive(_)),
                "{kind:?} of {size}: {error:?}"
            );
        }
    }
}

#[test]
fn contents_are_larger_than_headers_may_be() {
    if !is_root_or_skip() {
        return;
    }
    let place = Place::new();
    let data: &'static [u8] = Box::leak(vec![7_u8; 5 << 20].into_boxed_slice());
    unpack(
        &archive(&[Item::File("big", data), Item::File("next", b"x")])[..],
        &place.root(),
        None,
    )
    .expect("unpack");
    assert_eq!(
        std::fs::metadata(place.root().join("big"))
            .expect("stat")
            .len(),
        data.len() as u64
    );
    assert!(place.root().join("next").exists());
}

#[test]
fn a_small_blob_cannot_become_a_large_layer() {
    if !is_root_or_skip() {
        return;
    }
    let place = Place::new();
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..4].copy_from_slice(b"zero");
    header.set_size(1 << 30);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let stream = io::Cursor::new(header.as_bytes().to_vec()).chain(io::repeat(0));
    let error = unpack(stream, &place.root(), Some(1024)).expect_err("refused");
    let error = LayerError::unpack("zero".to_owned(), error);
    assert!(is_too_large(&error), "{error:?}");
}

fn is_too_large(error: &LayerError) -> bool {
    let bound = TooLarge::Accepted;
    matches!(error, LayerError::TooLarge { source, .. } if *source == bound)
}

#[test]
fn what_is_skipped_is_metered_and_not_larger_than_a_content() {
    let unpacked = |size| {
        let place = Place::new();
        let stream = announcing(EntryType::XGlobalHeader, size);
        let metered = Metered::new(stream, 1 << 20, CancellationToken::new());
        unpack(metered, &place.root(), None).expect_err("refused")
    };
    let error = LayerError::unpack("skipped".to_owned(), unpacked(1 << 30));
    assert!(is_too_large(&error), "{error:?}");
    let error = unpacked(1 << 50);
    assert!(matches!(error, UnpackError::Refused { .. }), "{error:?}");
}
