//! The wire format of protobuf: fields by number, before anything is known of their types.
//!
//! Lengths are checked before they are believed; nothing is copied.

/// One value on the wire.
#[derive(Clone, Copy)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// What is left to read.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut out = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or("unexpected EOF")?;
            self.0 = rest;
            out |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(out);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], String> {
        let len =
            usize::try_from(len).map_err(|_| "proto: negative length found during unmarshaling")?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or("unexpected EOF")?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next field; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>, String> {
        if self.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Wire::Fixed64(u64::from_le_bytes(
                    bytes.try_into().map_err(|_| "unexpected EOF")?,
                ))
            }
            2 => {
                let len = self.varint()?;
                Wire::Bytes(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        match key >> 3 {
            0 => Err(format!("proto: illegal tag 0 (wire type {key})")),
            tag => Ok(Some((tag, value))),
        }
    }
}
