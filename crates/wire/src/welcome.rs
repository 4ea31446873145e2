//! `welcome`: the daemon's answer to a good hello.

use crate::WireError;
use crate::bytes::{Builder, Fields};

/// The session's parameters for the rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Number of the session, unique within the daemon's instance.
    pub session: u64,
    /// Random id of this run of the daemon.
    pub instance: [u8; 16],
    pub stream: [u8; 16],
    /// The attempt; all zero where the job has none.
    pub attempt: [u8; 16],
    /// The attempt's number within its job.
    pub attempt_number: Option<u64>,
    /// The first step to be delivered: the requested one, or the first after a quarantined range.
    pub next_step: u64,
    /// The stream's end, where known: the first step that does not exist.
    pub end_step: Option<u64>,
    pub slices: u32,
    pub seq_len: u32,
    pub rows_per_slice: u32,
    /// First slice of this rank.
    pub first_slice: u32,
    /// Slices of this rank in each step, from `first_slice` on.
    pub slice_count: u32,
    /// Credits granted, in steps.
    pub credits: u32,
}

impl Welcome {
    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        self.check()?;
        Builder::new("welcome", kind)
            .u64(self.session)
            .raw(&self.instance)
            .raw(&self.stream)
            .raw(&self.attempt)
            .known(self.attempt_number)
            .u64(self.next_step)
            .known(self.end_step)
            .u32(self.slices)
            .u32(self.seq_len)
            .u32(self.rows_per_slice)
            .u32(self.first_slice)
            .u32(self.slice_count)
            .u32(self.credits)
            .finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut f = Fields::new("welcome", body);
        let welcome = Self {
            session: f.u64()?,
            instance: f.array()?,
            stream: f.array()?,
            attempt: f.array()?,
            attempt_number: f.known()?,
            next_step: f.u64()?,
            end_step: f.known()?,
            slices: f.u32()?,
            seq_len: f.u32()?,
            rows_per_slice: f.u32()?,
            first_slice: f.u32()?,
            slice_count: f.u32()?,
            credits: f.u32()?,
        };
        f.end()?;
        welcome.check().map(|()| welcome)
    }

    fn check(&self) -> Result<(), WireError> {
        let end = self.first_slice.checked_add(self.slice_count);
        if self.slice_count == 0 || end.is_none_or(|end| end > self.slices) {
            let (first, count, all) = (self.first_slice, self.slice_count, self.slices);
            return Err(WireError::body(
                "welcome",
                format!("slices {first} and {count} more of {all}"),
            ));
        }
        Ok(())
    }
}
