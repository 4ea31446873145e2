//! Segments of sessions that are over, which frames may still keep mapped.
//!
//! A daemon that has started again keeps its arena small while ranks map the memory of the one before, which they say
//! in the first message of a session. A loop rarely has dropped its last batch by then, so the rank begins another
//! session once that memory is free.

use std::sync::Weak;

use batchweave_arena::MappedSegment;

/// The run of a daemon.
type Instance = [u8; 16];

#[derive(Default)]
pub(super) struct Earlier {
    segments: Vec<(Instance, Weak<MappedSegment>)>,
    /// A daemon was told of memory in use.
    told: bool,
}

impl Earlier {
    /// Adds the segments of a session.
    pub(super) fn add(&mut self, instance: Instance, segments: Vec<Weak<MappedSegment>>) {
        let segments = segments.into_iter().map(|segment| (instance, segment));
        self.segments.extend(segments);
        self.segments.retain(|(_, one)| one.strong_count() > 0);
    }

    /// Returns the bytes in use for a new session, without those of the run `current`.
    pub(super) fn tell(&mut self, current: Option<&Instance>) -> u64 {
        let others = self.segments.iter().filter(|(of, _)| Some(of) != current);
        let segments = others.filter_map(|(_, segment)| segment.upgrade());
        let bytes = segments.map(|segment| segment.bytes()).sum();
        self.told = bytes > 0;
        bytes
    }

    /// Whether a daemon was told of memory that is free by now.
    pub(super) fn are_free(&self, current: &Instance) -> bool {
        let free =
            |(of, one): &(Instance, Weak<MappedSegment>)| of == current || one.strong_count() == 0;
        self.told && self.segments.iter().all(free)
    }
}
