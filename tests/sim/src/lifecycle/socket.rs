//! A rank's end of its daemon's socket: messages, segments, and the frames that it holds.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use batchweave_arena::MappedSegment;
use batchweave_consumer::simulation::{Packet, Socket};
use batchweave_core::crc::crc32c;
use batchweave_core::ids::Step;
use batchweave_wire::{BatchMessage, ClientMessage, DaemonMessage, Release, SliceRef};

/// A complete step with its slices.
#[derive(Debug)]
pub(super) struct CompleteStep {
    pub(super) step: Step,
    slices: Vec<SliceRef>,
}

impl CompleteStep {
    /// Returns the numbers under which its frames are released.
    pub(super) fn frames(&self) -> Vec<u64> {
        self.slices.iter().map(|at| at.frame).collect()
    }
}

/// A rank's connection to its daemon.
pub(super) struct Link {
    socket: Socket,
    segments: BTreeMap<u32, Arc<MappedSegment>>,
    /// Slices of incomplete steps.
    coming: BTreeMap<Step, Vec<SliceRef>>,
}

/// The meaning of a message for the rank.
pub(super) enum Incoming {
    Message(DaemonMessage),
    Step(CompleteStep),
    Nothing,
    /// A message that no correct daemon sends.
    Wrong(String),
}

impl Link {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            segments: BTreeMap::new(),
            coming: BTreeMap::new(),
        }
    }

    /// Sends a message, which is lost if the daemon has closed the connection.
    pub(super) fn send(&self, message: &ClientMessage) {
        if let Ok(bytes) = message.encode() {
            self.socket.send(bytes);
        }
    }

    pub(super) fn release(&self, next_step: Step, frames: Vec<u64>) {
        self.send(&ClientMessage::Release(Release { next_step, frames }));
    }

    /// Returns the next message, or none when the daemon is gone.
    pub(super) async fn receive(&mut self) -> Option<Packet> {
        self.socket.receive().await
    }

    pub(super) fn handle_packet(&mut self, packet: Packet) -> Incoming {
        match (DaemonMessage::decode(&packet.bytes), packet.segment) {
            (Ok(DaemonMessage::Segment(message)), Some(segment)) => {
                let fd = segment.as_fd().try_clone_to_owned();
                let mapped = fd.map_err(|e| e.to_string()).and_then(|fd| {
                    MappedSegment::map(fd, message.bytes).map_err(|e| e.to_string())
                });
                match mapped {
                    Ok(mapped) => {
                        self.segments.insert(message.id, mapped);
                        Incoming::Nothing
                    }
                    Err(e) => Incoming::Wrong(format!("a segment can't be mapped: {e}")),
                }
            }
            (Ok(DaemonMessage::Batch(batch)), None) => self.batch(&batch),
            (Ok(DaemonMessage::Layout(_) | DaemonMessage::RetireSegment(_)), None) => {
                Incoming::Nothing
            }
            (Ok(message), None) => Incoming::Message(message),
            (Ok(_), Some(_)) => Incoming::Wrong("a segment came with another message".to_owned()),
            (Err(e), _) => Incoming::Wrong(format!("a message can't be read: {e}")),
        }
    }

    fn batch(&mut self, batch: &BatchMessage) -> Incoming {
        let coming = self.coming.entry(batch.step).or_default();
        if coming.len() != batch.first as usize {
            return Incoming::Wrong(format!("slices of step {} out of order", batch.step));
        }
        coming.extend_from_slice(&batch.slices);
        if coming.len() < batch.of as usize {
            return Incoming::Nothing;
        }
        let slices = self.coming.remove(&batch.step).unwrap_or_default();
        let step = batch.step;
        Incoming::Step(CompleteStep { step, slices })
    }

    /// Returns the CRC32C of each slice's data in shared memory now, or none if a frame does not
    /// exist.
    pub(super) fn sums(&self, step: &CompleteStep) -> Option<Vec<u32>> {
        let sum = |at: &SliceRef| {
            let frame = self.segments.get(&at.segment)?.frame(at.offset, at.length);
            Some(crc32c(frame.ok()?.bytes()))
        };
        step.slices.iter().map(sum).collect()
    }
}
