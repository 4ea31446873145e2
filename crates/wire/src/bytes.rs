//! Bounds-checked reading and writing of little-endian fields.

use crate::{HEADER_BYTES, MAGIC, MESSAGE_BYTES_MAX, PROTOCOL, WireError};

/// Takes fields off the front of a body.
pub(crate) struct Fields<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'static str, body: &'a [u8]) -> Self {
        Self {
            message,
            rest: body,
        }
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> WireError {
        WireError::body(self.message, reason)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            let missing = count - self.rest.len();
            return Err(self.error(format!("{missing} bytes are missing")));
        };
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a number whose largest value stands for "unknown".
    pub(crate) fn known(&mut self) -> Result<Option<u64>, WireError> {
        self.u64().map(|n| (n != u64::MAX).then_some(n))
    }

    /// Reads a field that must be zero, reserved for later protocols.
    pub(crate) fn reserved(&mut self) -> Result<(), WireError> {
        match self.u32()? {
            0 => Ok(()),
            n => Err(self.error(format!("a reserved field holds {n}, not 0"))),
        }
    }

    /// Reads a count of at most `limit`.
    pub(crate) fn count(&mut self, what: &str, limit: usize) -> Result<usize, WireError> {
        let count = self.u32()? as usize;
        if count > limit {
            return Err(self.error(format!("{count} {what}, at most {limit} are allowed")));
        }
        Ok(count)
    }

    pub(crate) fn text(&mut self, count: usize) -> Result<&'a str, WireError> {
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes).map_err(|e| self.error(format!("text is not UTF-8: {e}")))
    }

    /// Returns the rest, for a body that ends in JSON.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(self.error(format!("{n} bytes follow the message's end"))),
        }
    }
}

/// Builds one message; `finish` sets the header's length.
pub(crate) struct Builder {
    message: &'static str,
    bytes: Vec<u8>,
}

impl Builder {
    pub(crate) fn new(message: &'static str, kind: u16) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&PROTOCOL.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        Self { message, bytes }
    }

    pub(crate) fn u32(mut self, n: u32) -> Self {
        self.bytes.extend_from_slice(&n.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, n: u64) -> Self {
        self.bytes.extend_from_slice(&n.to_le_bytes());
        self
    }

    pub(crate) fn known(self, n: Option<u64>) -> Self {
        self.u64(n.unwrap_or(u64::MAX))
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn finish(mut self) -> Result<Vec<u8>, WireError> {
        let length = self.bytes.len();
        if length > MESSAGE_BYTES_MAX {
            let reason = format!("{length} bytes, at most {MESSAGE_BYTES_MAX} are allowed");
            return Err(WireError::body(self.message, reason));
        }
        self.bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        Ok(self.bytes)
    }
}

/// Checks the header and returns the type and the body.
pub(crate) fn split(message: &[u8]) -> Result<(u16, &[u8]), WireError> {
    let mut head = Fields::new("header", message);
    let magic = head.array()?;
    if magic != MAGIC {
        return Err(WireError::Magic { found: magic });
    }
    let version = u16::from_le_bytes(head.array()?);
    if version != PROTOCOL {
        return Err(WireError::Version { found: version });
    }
    let kind = u16::from_le_bytes(head.array()?);
    let stated = head.u32()?;
    if stated as usize != message.len() || message.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::Length {
            received: message.len(),
            stated,
        });
    }
    head.reserved()?;
    Ok((kind, &message[HEADER_BYTES..]))
}
