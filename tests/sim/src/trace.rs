//! The trace of a run: every request, its effect and its answer, and faults of actors, in order. The
//! hash of the trace is the run's fingerprint: the same seed gives the same one.

use std::sync::Arc;
use std::time::Duration;

use batchweave_store::{Effect, ErrorKind, Op};

/// FNV-1a over bytes: a fingerprint without protection against attacks.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    fnv_on(0xcbf2_9ce4_8422_2325, bytes)
}

fn fnv_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A put created the object.
    Created,
    /// A put found an object there.
    Exists,
    /// A read found the object.
    Found,
    /// A read found the object, but other bytes arrived.
    Lied,
    /// A read found nothing.
    Missing,
    /// A listing returned this many keys.
    Listed(u32),
    Deleted,
    Failed(ErrorKind, Effect),
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A request is sent.
    Sent {
        /// The fingerprint of its body.
        print: u64,
        /// The size of its body.
        bytes: u32,
    },
    /// A write takes effect, or finds the key taken.
    Landed {
        /// True if the write created the object.
        created: bool,
    },
    /// The actor gets the answer.
    Answered(Answer),
    /// Any other event, in words.
    Note(String),
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at: Duration,
    pub actor: u32,
    /// The request's number; 0 for an event that belongs to none.
    pub request: u64,
    pub op: Op,
    pub key: Arc<str>,
    pub what: What,
}

/// All events, or only their hash.
#[derive(Debug)]
pub(crate) struct Trace {
    keep: bool,
    hash: u64,
    events: Vec<Event>,
}

impl Trace {
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            keep,
            hash: fnv(b"batchweave-sim"),
            events: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, event: Event) {
        let code: [u64; 2] = match &event.what {
            What::Sent { print, .. } => [1, *print],
            What::Landed { created } => [2, u64::from(*created)],
            What::Answered(answer) => [3, code(*answer)],
            // Without its text: another wording of a message isn't another behaviour.
            What::Note(_) => [4, 0],
        };
        let numbers = [
            event.at.as_micros() as u64,
            u64::from(event.actor),
            event.request,
            event.op as u64,
            code[0],
            code[1],
        ];
        for number in numbers {
            self.hash = fnv_on(self.hash, &number.to_le_bytes());
        }
        self.hash = fnv_on(self.hash, event.key.as_bytes());
        if self.keep {
            self.events.push(event);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

fn code(answer: Answer) -> u64 {
    match answer {
        Answer::Created => 1,
        Answer::Exists => 2,
        Answer::Found => 3,
        Answer::Missing => 4,
        Answer::Deleted => 5,
        Answer::Lied => 6,
        Answer::Listed(n) => 1000 + u64::from(n),
        Answer::Failed(kind, effect) => 100 + fnv(format!("{kind:?}{effect:?}").as_bytes()) % 800,
    }
}
