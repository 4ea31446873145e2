//! `batch` and `release`: the frames that a rank may read, and those it no longer needs.

use crate::bytes::{Builder, Fields};
use crate::{ALIGN, FRAMES_MAX, LAYOUTS_MAX, WireError};

pub(crate) const BATCH_HEAD_BYTES: usize = 24;
pub(crate) const SLICE_BYTES: usize = 40;

/// The place of one slice's arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceRef {
    /// Index of the slice in the TGB.
    pub slice: u32,
    pub segment: u32,
    /// The layout of the arrays.
    pub layout: u32,
    /// The id of this delivery for its release; unique within a run of the daemon.
    pub frame: u64,
    /// First byte of the array data in the segment, a multiple of 64.
    pub offset: u64,
    /// Bytes of the array data, as in the layout.
    pub length: u64,
}

/// Some or all of a rank's slices of one step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMessage {
    pub step: u64,
    /// Position of the first slice below among the rank's slices of this step.
    pub first: u32,
    /// Number of the rank's slices of this step in all messages.
    pub of: u32,
    pub slices: Vec<SliceRef>,
}

impl BatchMessage {
    /// Returns the messages that deliver `slices`, all slices of one step.
    pub fn split(step: u64, slices: &[SliceRef]) -> impl Iterator<Item = BatchMessage> {
        let of = slices.len() as u32;
        slices
            .chunks(FRAMES_MAX)
            .enumerate()
            .map(move |(i, part)| BatchMessage {
                step,
                first: (i * FRAMES_MAX) as u32,
                of,
                slices: part.to_vec(),
            })
    }

    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        self.check()?;
        let mut out = Builder::new("batch", kind)
            .u64(self.step)
            .u32(self.first)
            .u32(self.of)
            .u32(self.slices.len() as u32)
            .u32(0);
        for s in &self.slices {
            out = out.u32(s.slice).u32(s.segment).u32(s.layout).u32(0);
            out = out.u64(s.frame).u64(s.offset).u64(s.length);
        }
        out.finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut f = Fields::new("batch", body);
        let (step, first, of) = (f.u64()?, f.u32()?, f.u32()?);
        let count = f.count("slices", FRAMES_MAX)?;
        f.reserved()?;
        let slices = (0..count)
            .map(|_| slice(&mut f))
            .collect::<Result<_, _>>()?;
        f.end()?;
        let batch = Self {
            step,
            first,
            of,
            slices,
        };
        batch.check().map(|()| batch)
    }

    fn check(&self) -> Result<(), WireError> {
        let fail = |reason: String| Err(WireError::body("batch", reason));
        let count = self.slices.len();
        if count == 0 || count > FRAMES_MAX {
            return fail(format!("{count} slices; 1 to {FRAMES_MAX} are allowed"));
        }
        if u64::from(self.first) + count as u64 > u64::from(self.of) {
            return fail(format!(
                "slices {} and {count} more of {}",
                self.first, self.of
            ));
        }
        for s in &self.slices {
            if s.offset % ALIGN != 0 || s.offset.checked_add(s.length).is_none() {
                return fail(format!(
                    "frame {} at offset {} of {} bytes",
                    s.frame, s.offset, s.length
                ));
            }
            if s.layout >= LAYOUTS_MAX {
                return fail(format!(
                    "frame {} has layout {}; ids are below {LAYOUTS_MAX}",
                    s.frame, s.layout
                ));
            }
        }
        Ok(())
    }
}

fn slice(f: &mut Fields<'_>) -> Result<SliceRef, WireError> {
    let (slice, segment, layout) = (f.u32()?, f.u32()?, f.u32()?);
    f.reserved()?;
    let (frame, offset, length) = (f.u64()?, f.u64()?, f.u64()?);
    Ok(SliceRef {
        slice,
        segment,
        layout,
        frame,
        offset,
        length,
    })
}

/// Frames whose arrays are dropped, and the rank's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// First step that the rank has not received in full; earlier ones count as delivered.
    pub next_step: u64,
    pub frames: Vec<u64>,
}

impl Release {
    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        let count = self.frames.len();
        if count > FRAMES_MAX {
            let reason = format!("{count} frames, at most {FRAMES_MAX} are allowed");
            return Err(WireError::body("release", reason));
        }
        let head = Builder::new("release", kind)
            .u64(self.next_step)
            .u32(count as u32)
            .u32(0);
        self.frames
            .iter()
            .fold(head, |out, &frame| out.u64(frame))
            .finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut f = Fields::new("release", body);
        let next_step = f.u64()?;
        let count = f.count("frames", FRAMES_MAX)?;
        f.reserved()?;
        let frames = (0..count).map(|_| f.u64()).collect::<Result<_, _>>()?;
        f.end()?;
        Ok(Self { next_step, frames })
    }
}
