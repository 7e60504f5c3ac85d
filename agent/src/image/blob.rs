//! Reading a layer blob: hash it, bound it, decompress it, hash what comes out.
//!
//! ```text
//! blob bytes --sha256, size--> gzip | zstd | plain --metered--> sha256 (diff ID)--> unpack
//! ```
//! Every byte that comes out is metered, wherever it goes: a small blob makes any number of them.
//!
//! Blocking readers; the network side feeds them through a bounded channel.

mod metered;
mod zstd;

use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};

pub(crate) use self::metered::Metered;

use self::zstd::ZstdDecoder;
use super::{capacity::Claim, error::TooLarge};

/// Hashes and counts everything read through it.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
    count: u64,
    limit: u64,
}

impl<R: Read> Hashing<R> {
    /// Fails with `InvalidData` once more than `limit` bytes came.
    pub(super) fn new(inner: R, limit: u64) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            count: 0,
            limit,
        }
    }

    /// Reads what is left (a tar's padding, a compressor's trailer) and returns `sha256:<hex>` and
    /// the byte count.
    pub(super) fn finish(mut self) -> io::Result<(String, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((
            format!("sha256:{}", hex::encode(self.hasher.finalize())),
            self.count,
        ))
    }

    /// The reader below.
    pub(super) fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// As [`Hashing::finish`], but gives the reader below back instead of the count.
    pub(super) fn finish_with_inner(mut self) -> io::Result<(String, R)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((
            format!("sha256:{}", hex::encode(self.hasher.finalize())),
            self.inner,
        ))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count += n as u64;
        if self.count > self.limit {
            return Err(TooLarge::Announced(self.limit).into());
        }
        self.hasher.update(&buf[..n]);
        Ok(n)
    }
}

/// How a stream is compressed, by its first bytes, whatever its media type claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// `None`: not at all.
    pub(super) fn detect(start: &[u8]) -> Option<Self> {
        if start.starts_with(&[0x1f, 0x8b]) {
            Some(Self::Gzip)
        } else if zstd::is_zstd(start) {
            Some(Self::Zstd)
        } else {
            None
        }
    }
}

/// What a stream has in it, decompressed.
pub(crate) enum Decompressed<R: Read> {
    /// gzip, all members.
    Gzip(Box<flate2::bufread::MultiGzDecoder<BufReader<R>>>),
    /// zstd, all frames.
    Zstd(Box<ZstdDecoder<BufReader<R>>>),
    /// No compression.
    Plain(BufReader<R>),
}

impl<R: Read> Decompressed<R> {
    /// Peeks at the magic number. `claim` is for the memory that this takes.
    pub(super) fn new(inner: R, claim: Claim) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(64 << 10, inner);
        let start = io::BufRead::fill_buf(&mut reader)?;
        Ok(match Compression::detect(start) {
            Some(Compression::Gzip) => {
                Self::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(reader)))
            }
            Some(Compression::Zstd) => Self::Zstd(Box::new(ZstdDecoder::new(reader, claim))),
            None => Self::Plain(reader),
        })
    }

    /// The reader below, for its hash.
    pub(super) fn into_inner(self) -> R {
        match self {
            Self::Gzip(decoder) => decoder.into_inner().into_inner(),
            Self::Zstd(decoder) => decoder.into_inner().into_inner(),
            Self::Plain(reader) => reader.into_inner(),
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
            Self::Plain(reader) => reader.read(buf),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::CompressionLevel;

    use super::*;

    fn roundtrip(compressed: &[u8]) -> (Vec<u8>, String) {
        let mut reader =
            Decompressed::new(Hashing::new(compressed, 1 << 20), Claim::alone()).expect("magic");
        let mut out = Vec::new();
        reader.read_to_end(&mut out).expect("decompress");
        (out, reader.into_inner().finish().expect("finish").0)
    }

    #[test]
    fn gzip_zstd_and_plain_are_told_apart_by_their_bytes() {
        let plain = b"some layer".to_vec();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&plain).expect("write");
        let gz = gz.finish().expect("finish");
        let zst = ruzstd::encoding::compress_to_vec(&plain[..], CompressionLevel::Fastest);
        // An application's own data before the frames is none of the layer's.
        let skippable = [&b"\x5f\x2a\x4d\x18\x03\0\0\0own"[..], &zst].concat();
        for compressed in [plain.clone(), gz, zst, skippable] {
            let (out, digest) = roundtrip(&compressed);
            assert_eq!(out, plain);
            assert_eq!(
                digest,
                format!("sha256:{}", hex::encode(Sha256::digest(&compressed)))
            );
        }
    }

    #[test]
    fn more_bytes_than_announced_are_refused() {
        let error = Hashing::new(&[0_u8; 11][..], 10)
            .finish()
            .expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
