//! Reading a layer blob: hash it, bound it, decompress it, hash what comes out.
//!
//! ```text
//! blob bytes --sha256, size--> gzip | zstd | plain --sha256 (diff ID)--> unpack
//! ```
//! Blocking readers; the network side feeds them through a bounded channel.

use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};

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
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "more than the {} bytes that the manifest announces",
                    self.limit
                ),
            ));
        }
        self.hasher.update(&buf[..n]);
        Ok(n)
    }
}

/// A decompressor chosen by the stream's first bytes, whatever its media type claims.
pub(crate) enum Decompressed<R: Read> {
    /// gzip, all members.
    Gzip(Box<flate2::bufread::MultiGzDecoder<BufReader<R>>>),
    /// zstd, with the window bounded at 128 MiB.
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<R>>>),
    /// No compression.
    Plain(BufReader<R>),
}

/// log2 of the largest window a zstd frame may ask for (zstd's own default for `-T0 --long=27`).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl<R: Read> Decompressed<R> {
    /// Peeks at the magic number.
    pub(super) fn new(inner: R) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(64 << 10, inner);
        let magic = io::BufRead::fill_buf(&mut reader)?;
        if magic.starts_with(&[0x1f, 0x8b]) {
            return Ok(Self::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(
                reader,
            ))));
        }
        if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            return Ok(Self::Zstd(Box::new(decoder)));
        }
        Ok(Self::Plain(reader))
    }

    /// The reader below, for its hash.
    pub(super) fn into_inner(self) -> R {
        match self {
            Self::Gzip(decoder) => decoder.into_inner().into_inner(),
            Self::Zstd(decoder) => decoder.finish().into_inner(),
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

    use super::*;

    fn roundtrip(compressed: &[u8]) -> (Vec<u8>, String) {
        let mut reader = Decompressed::new(Hashing::new(compressed, 1 << 20)).expect("magic");
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
        let zst = zstd::encode_all(&plain[..], 1).expect("encode");
        for compressed in [plain.clone(), gz, zst] {
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
