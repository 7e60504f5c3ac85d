//! Bounds how much comes out of a decompressor, and ends it when nobody wants that any more.
//!
//! What comes out costs time even where it is only skipped, and a blob of megabytes has terabytes
//! in it. Blocking work outlives the future that waits for it; the flag reaches it.

use std::io::{self, Read};

use tokio_util::sync::CancellationToken;

use super::super::{capacity::given_up, error::TooLarge};

/// So many bytes and no more, for as long as they are wanted.
pub(crate) struct Metered<R> {
    inner: R,
    left: u64,
    refusal: TooLarge,
    given_up: CancellationToken,
}

impl<R> Metered<R> {
    pub(in crate::image) fn new(inner: R, limit: u64, given_up: CancellationToken) -> Self {
        Self {
            inner,
            left: limit,
            refusal: TooLarge::Accepted,
            given_up,
        }
    }

    /// From here on at most so many: what was looked for is found.
    pub(in crate::image) fn end_within(&mut self, trailer: u64) {
        if trailer < self.left {
            self.left = trailer;
            self.refusal = TooLarge::Behind;
        }
    }

    pub(in crate::image) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.given_up.is_cancelled() {
            return Err(given_up());
        }
        // One more than is left tells the end from too much.
        let room = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let room = room.min(buf.len());
        let count = self.inner.read(&mut buf[..room])?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => return Err(self.refusal.into()),
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(reader: &mut impl Read) -> (u64, Option<String>) {
        let mut out = Vec::new();
        let error = io::copy(reader, &mut out).err();
        (out.len() as u64, error.map(|error| error.to_string()))
    }

    #[test]
    fn what_comes_out_is_counted_to_the_last_byte() {
        let metered = |bytes: u64, limit| {
            Metered::new(io::repeat(0).take(bytes), limit, CancellationToken::new())
        };
        assert_eq!(copied(&mut metered(1000, 1000)), (1000, None));
        assert_eq!(copied(&mut metered(0, 0)), (0, None));
        let refusal = Some("the layer is larger than this node accepts".to_owned());
        assert_eq!(copied(&mut metered(1001, 1000)).1, refusal);
        assert_eq!(copied(&mut metered(1, 0)).1, refusal);
    }

    #[test]
    fn less_comes_behind_the_end() {
        let mut metered = Metered::new(io::repeat(0), 10_000, CancellationToken::new());
        metered.read_exact(&mut [0; 500]).expect("the archive");
        metered.end_within(100);
        let (count, error) = copied(&mut metered);
        assert!(count <= 100, "{count}");
        let error = error.expect("too much");
        assert_eq!(
            error,
            "too much comes behind the end of the layer's archive"
        );
        // What is left of the whole stays the bound where it is less.
        let mut metered = Metered::new(io::repeat(0), 50, CancellationToken::new());
        metered.end_within(100);
        let error = copied(&mut metered).1.expect("too much");
        assert_eq!(error, "the layer is larger than this node accepts");
    }

    #[test]
    fn what_nobody_wants_ends() {
        let wanted = CancellationToken::new();
        let mut metered = Metered::new(io::repeat(0), u64::MAX, wanted.clone());
        metered.read_exact(&mut [0; 500]).expect("wanted");
        wanted.cancel();
        let error = copied(&mut metered).1.expect("given up");
        assert_eq!(error, "the pull was given up");
    }
}
