//! A zstd stream (RFC 8878): frames one after another, skippable frames before, between and after
//! them.
//!
//! `ruzstd` decodes one frame; what concerns several is here. Content checksums are read and not
//! compared: a layer's digests are, of the blob and of what comes out of it. Memory for a frame's
//! window comes out of what all pulls of the node share ([`super::super::capacity`]).

use std::{
    error::Error,
    io::{self, BufRead, Read},
};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use super::super::capacity::Claim;

/// Largest window that a frame may ask for: what `zstd --ultra -22` and `zstd --long` make. The
/// decoder keeps as much of its output in memory, rounded up to a power of two, as it comes; a
/// frame that asks for more is refused by its header.
const WINDOW_MAX: u64 = 128 << 20;

const FRAME: u32 = 0xfd2f_b528;
/// The last four bits are the application's to choose.
const SKIPPABLE_FRAME: u32 = 0x184d_2a50;

/// Whether a stream that starts so is zstd: with a frame, or with a skippable one as containerd
/// accepts it (`archive/compression/compression.go` at v2.1).
pub(super) fn is_zstd(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(|magic| {
        let magic = u32::from_le_bytes(*magic);
        magic == FRAME || magic & !0xf == SKIPPABLE_FRAME
    })
}

/// What all frames of a stream hold.
///
/// # Errors
/// Of kind `InvalidData` for what is no zstd, and for a window above [`WINDOW_MAX`]; of kind
/// `UnexpectedEof` for a stream that ends inside of a frame; those of [`Claim::take`]; else of the
/// kind that the reader below has failed with.
pub(crate) struct ZstdDecoder<R> {
    reader: R,
    frame: FrameDecoder,
    claim: Claim,
}

impl<R: BufRead> ZstdDecoder<R> {
    pub(super) fn new(reader: R, claim: Claim) -> Self {
        Self {
            reader,
            frame: decoder(&claim),
            claim,
        }
    }

    pub(super) fn into_inner(self) -> R {
        self.reader
    }

    /// Goes on to the next frame that has content; `false` at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
            let mut header = Recorded {
                reader: &mut self.reader,
                bytes: Vec::new(),
            };
            match self.frame.reset(&mut header) {
                Ok(()) => return Ok(true),
                // The header is read, and nothing taken for it yet.
                Err(FrameDecoderError::WindowSizeTooBig { requested, .. })
                    if requested <= WINDOW_MAX =>
                {
                    let header = header.bytes;
                    // Holds nothing of its last frame while it waits.
                    self.frame = FrameDecoder::new();
                    self.claim.take(requested)?;
                    self.frame = decoder(&self.claim);
                    self.frame.reset(&header[..]).map_err(failed)?;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(u64::from(length))?,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.reader.by_ref().take(length), &mut io::sink())?;
        if skipped < length {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the zstd stream ends inside of a skippable frame",
            ));
        }
        Ok(())
    }
}

/// For windows as large as there is memory for; takes none yet.
fn decoder(claim: &Claim) -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(claim.window());
    decoder
}

/// Keeps what was read: a frame's header, of 18 bytes at most.
struct Recorded<R> {
    reader: R,
    bytes: Vec<u8>,
}

impl<R: Read> Read for Recorded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buf)?;
        self.bytes.extend_from_slice(&buf[..count]);
        Ok(count)
    }
}

impl<R: BufRead> Read for ZstdDecoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            // Nothing comes before more than a window is decoded, or the frame is at its end.
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                self.frame
                    .decode_blocks(&mut self.reader, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(failed)?;
            }
            let read = self.frame.read(buf)?;
            // A frame may be empty, which is not the end of the stream.
            if read > 0 || !self.next_frame()? {
                return Ok(read);
            }
        }
    }
}

/// The kind is that of the reader below where it is the one that failed.
fn failed(error: FrameDecoderError) -> io::Error {
    if let FrameDecoderError::WindowSizeTooBig { requested, .. } = error {
        let message = format!(
            "a zstd frame asks for a window of {requested} bytes, at most {WINDOW_MAX} are given"
        );
        return io::Error::new(io::ErrorKind::InvalidData, message);
    }
    let first: &(dyn Error + 'static) = &error;
    let below = std::iter::successors(Some(first), |&error| error.source())
        .find_map(|error| error.downcast_ref::<io::Error>());
    let kind = below.map_or(io::ErrorKind::InvalidData, io::Error::kind);
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use tokio_util::sync::CancellationToken;

    use super::{super::super::capacity::Capacity, *};

    /// Bytes that compress, but not to nothing.
    fn text() -> Vec<u8> {
        let lines =
            (0..400_u32).map(|n| format!("line {n} of {}\n", n.wrapping_mul(2_654_435_761)));
        lines.collect::<String>().into_bytes()
    }

    fn frame(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    fn skippable(content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).expect("short");
        [
            &0x184d_2a57_u32.to_le_bytes(),
            &length.to_le_bytes(),
            content,
        ]
        .concat()
    }

    /// Such a frame of one block that is not compressed.
    fn frame_with_window(descriptor: u8) -> Vec<u8> {
        [
            &FRAME.to_le_bytes()[..],
            &[0, descriptor, 0x19, 0, 0],
            b"abc",
        ]
        .concat()
    }

    fn decode(stream: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut decoder = ZstdDecoder::new(BufReader::with_capacity(16, stream), Claim::alone());
        decoder.read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn all_frames_are_one_stream() {
        let text = text();
        let (first, second) = text.split_at(1000);
        let parts = [
            skippable(b"first of all"),
            frame(first),
            skippable(b""),
            frame(b""),
            frame(second),
            skippable(&[0; 5000]),
        ];
        assert_eq!(decode(&parts.concat()).expect("frames"), text);
        assert_eq!(decode(&skippable(b"alone")).expect("a frame"), b"");
    }

    #[test]
    fn what_is_no_frame_is_refused_wherever_it_stands() {
        let good = frame(b"content");
        for bad in [&b"tar"[..], b"no frame", &[0; 512]] {
            let error = decode(&[&good, bad].concat()).expect_err("not zstd");
            let kind = if bad.len() < 4 {
                io::ErrorKind::UnexpectedEof
            } else {
                io::ErrorKind::InvalidData
            };
            assert_eq!(error.kind(), kind, "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        let stream = [frame(&text()), skippable(b"own")].concat();
        let frame = stream.len() - 11;
        for end in (1..stream.len()).filter(|end| *end != frame) {
            let error = decode(&stream[..end]).expect_err("too short");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{end}: {error}");
        }
    }

    #[test]
    fn damage_is_an_error_or_other_content_and_never_a_panic() {
        let good = frame(&text());
        let mut refused = 0;
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // Bounded: a length may have grown.
                let mut decoder = ZstdDecoder::new(&bad[..], Claim::alone()).take(1 << 20);
                refused += u32::from(io::copy(&mut decoder, &mut io::sink()).is_err());
            }
        }
        assert!(refused > 0);
    }

    /// Most address space that this process has had, in bytes.
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        1024 * kib.expect("VmPeak").parse::<u64>().expect("a number")
    }

    #[test]
    fn a_window_above_the_limit_is_refused_before_memory_is_taken_for_it() {
        // Five bits of exponent above 1 KiB, three of eighths: 128 MiB, an eighth more, 2 GiB, 1
        // TiB.
        assert_eq!(
            decode(&frame_with_window(17 << 3)).expect("128 MiB"),
            b"abc"
        );
        // Without a window, of one segment as large as its content: 8 bytes that say 1 GiB.
        let segment = [
            &FRAME.to_le_bytes()[..],
            &[0xe0],
            &(1_u64 << 30).to_le_bytes(),
        ]
        .concat();
        let before = peak();
        for (frame, size) in [
            (frame_with_window(17 << 3 | 1), (128 << 20) + (16 << 20)),
            (frame_with_window(21 << 3), 2_u64 << 30),
            (frame_with_window(30 << 3), 1 << 40),
            (segment, 1 << 30),
        ] {
            let error = decode(&frame).expect_err("too large");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(
                error.to_string(),
                format!(
                    "a zstd frame asks for a window of {size} bytes, at most 134217728 are given"
                )
            );
        }
        assert!(peak() - before < WINDOW_MAX, "{} then {before}", peak());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn decoders_share_the_nodes_memory() {
        let (capacity, wanted) = (Capacity::new(1, 3), CancellationToken::new());
        let claim = || Claim::new(capacity.clone(), wanted.clone());
        // 2 MiB, then 1, which goes into what the first had, then 4.
        let frames = [11 << 3, 10 << 3, 12 << 3].map(frame_with_window).concat();
        let mut first = ZstdDecoder::new(&frames[..], claim());
        first.read_exact(&mut [0; 3]).expect("2 MiB");
        assert_eq!(first.claim.window(), 2 << 20);
        let other = frame_with_window(11 << 3);
        let mut second = ZstdDecoder::new(io::Cursor::new(other), claim());
        let second = tokio::task::spawn_blocking(move || {
            second
                .read_exact(&mut [0; 3])
                .map(|()| second.claim.window())
        });
        let awaited = async {
            while !capacity.is_awaited() {
                tokio::task::yield_now().await;
            }
        };
        let short = std::time::Duration::from_secs(5);
        tokio::time::timeout(short, awaited).await.expect("waits");
        first.read_exact(&mut [0; 3]).expect("1 MiB");
        assert_eq!(first.claim.window(), 2 << 20);
        let error = first.read(&mut [0; 3]).expect_err("4 MiB of 3");
        assert_eq!(
            error.to_string(),
            "a window of 4194304 bytes does not fit into 3145728, all that pulls get"
        );
        // What has failed holds nothing.
        let second = tokio::time::timeout(short, second).await.expect("in time");
        assert_eq!(second.expect("ends").expect("2 MiB"), 2 << 20);
    }

    #[test]
    fn a_failure_of_the_reader_keeps_its_kind() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::TimedOut.into())
            }
        }
        let stream = [frame(&text()), skippable(b"own")].concat();
        for end in [
            0,
            3,
            5,
            100,
            stream.len() - 11,
            stream.len() - 5,
            stream.len() - 1,
        ] {
            let reader = BufReader::new(stream[..end].chain(Failing));
            let outcome = io::copy(
                &mut ZstdDecoder::new(reader, Claim::alone()),
                &mut io::sink(),
            );
            let error = outcome.expect_err("failed");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{end}: {error}");
        }
    }
}
