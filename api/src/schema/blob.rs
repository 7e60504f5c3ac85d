//! Reads the compact table that `build.rs` wrote, in place. `build/emit.rs` describes the layout.

#![allow(
    clippy::redundant_pub_crate,
    reason = "shared with the parent module only"
)]

include!(concat!(env!("OUT_DIR"), "/schema_layout.rs"));

static BLOB: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schema.bin"));

pub(super) const TYPE_LEN: usize = 24;
pub(super) const FIELD_LEN: usize = 48;
pub(super) const KIND_LEN: usize = 14;

/// One record of a section.
#[derive(Clone, Copy)]
pub(super) struct Record(&'static [u8]);

pub(super) fn record(section: std::ops::Range<usize>, len: usize, index: usize) -> Record {
    let at = section.start + index * len;
    Record(&BLOB[at..at + len])
}

impl Record {
    pub(super) fn byte(self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn short(self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    pub(super) fn text(self, at: usize) -> &'static str {
        std::str::from_utf8(self.bytes(at)).expect("the build step writes whole UTF-8 texts")
    }

    /// A text that is only compared.
    pub(super) fn bytes(self, at: usize) -> &'static [u8] {
        let start =
            u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]);
        let start = TEXTS.start + start as usize;
        &BLOB[start..start + usize::from(self.short(at + 4))]
    }
}
