//! Whether a rank may join, and which slices it reads: the checks of its hello against the stream. Pure. Its
//! job and attempt are checked in `membership`. On a node, each data coordinate of an attempt is read by one
//! live session, or by several that all declare that they share it.

use std::collections::BTreeMap;
use std::ops::Range;

use batchweave_core::ids::{AttemptId, JobName, Step};
use batchweave_core::mesh::{self, MeshError};
use batchweave_core::stream::StreamConfig;
use batchweave_wire::{BALANCED, ErrorName, Fault, Hello};

use super::membership::{AttemptRequest, Member, WaitReason};
use crate::engine::SessionId;
use crate::stream_head::below_first;

/// The ends of the stream when a rank sends its hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The oldest step that may be read.
    pub(crate) watermark: Step,
    /// The step before which the stream ends, once that is decided.
    pub(crate) end: Option<Step>,
}

impl Bounds {
    /// No bounds, for a rank whose start is not known yet.
    pub(crate) const NONE: Self = Self {
        watermark: 0,
        end: None,
    };
}

/// Why a rank may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another live session reads the coordinate. It may be about to end, so a short wait is worthwhile.
    Occupied(SessionId),
    /// Another attempt runs here. Its ranks may be about to end, so a short wait is worthwhile.
    Running(Box<Fault>),
    /// This daemon must open its attempt first.
    Open(Box<AttemptRequest>),
    /// Others must open its job or attempt first.
    Wait(Box<WaitReason>),
    /// It has received steps that are not in the log as far as it is known here.
    Beyond(Box<Fault>),
    /// The rank is refused without a wait.
    Final(Box<Fault>),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Final(Box::new(fault))
    }
}

/// The data coordinates that live sessions of this node read.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    live: BTreeMap<(JobName, AttemptId, u32), BTreeMap<SessionId, Reader>>,
}

/// A reader of a coordinate. Ranks that share one are distinguished by their global ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reader {
    rank: Option<u32>,
    shared: bool,
}

impl Reader {
    fn beside(self, other: Self) -> bool {
        self.shared && other.shared && self.rank != other.rank
    }
}

impl Admission {
    /// Admits `session`, or returns the session that reads its coordinate. Call `leave` when it is over.
    pub(crate) fn enter(&mut self, session: SessionId, member: &Member) -> Result<(), Refusal> {
        let Member {
            job, id, dp_rank, ..
        } = member;
        let new = Reader {
            rank: member.rank,
            shared: member.shared,
        };
        let readers = self.live.entry((job.clone(), *id, *dp_rank)).or_default();
        if let Some((other, _)) = readers.iter().find(|(_, other)| !new.beside(**other)) {
            return Err(Refusal::Occupied(*other));
        }
        readers.insert(session, new);
        Ok(())
    }

    /// Frees the coordinate of a session.
    pub(crate) fn leave(&mut self, session: SessionId) {
        self.live.retain(|_, readers| {
            readers.remove(&session);
            !readers.is_empty()
        });
    }
}

/// Returns the fault of a rank whose coordinate was not freed in time.
pub(crate) fn occupied(hello: &Hello, other: SessionId) -> Fault {
    let message = format!(
        "session {other} already reads dp_rank {} of this attempt",
        hello.dp_rank
    );
    let remedy = "give every rank its own coordinate, or pass the mesh (or shared=True) on all ranks that read \
                  one together, each with its global rank";
    Fault::new(ErrorName::DuplicateCoordinate, message).remedy(remedy)
}

/// Checks a hello by itself and against the daemon's job and the stream, except for step and mesh.
pub(crate) fn check(
    hello: &Hello,
    stream: &StreamConfig,
    served_jobs: &[String],
) -> Result<(), Fault> {
    hello
        .check()
        .map_err(|why| Fault::new(ErrorName::BadHello, why))?;
    check_job(hello, served_jobs)?;
    check_stream(hello, stream)
}

/// Returns the rank's slices; fails if it can't read from its step or in its mesh.
pub(crate) fn slices_of(
    hello: &Hello,
    stream: &StreamConfig,
    bounds: Bounds,
) -> Result<Range<u32>, Fault> {
    check_position(hello.next_step, bounds, stream)?;
    mesh::slices_of(stream.slices, hello.dp_size, hello.dp_rank).map_err(|why| misfit(&why))
}

/// Returns the fault of a mesh that does not fit. The remedy is a field of its own, not part of the message.
fn misfit(why: &MeshError) -> Fault {
    let MeshError::Size { slices, dp_size } = why else {
        return Fault::new(ErrorName::BadMesh, why.to_string());
    };
    let message = format!("dp_size {dp_size} does not divide the stream's {slices} slices a step");
    let sizes: Vec<String> = mesh::divisors(*slices).iter().map(u32::to_string).collect();
    let mut remedy = format!("choose a dp_size of {}", sizes.join(", "));
    if dp_size > slices {
        remedy += "; or split_rows=N, where N ranks share a slice's rows";
    }
    Fault::new(ErrorName::BadMesh, message).remedy(remedy)
}

fn check_job(hello: &Hello, served: &[String]) -> Result<(), Fault> {
    match &hello.job {
        Some(job) if !served.is_empty() && !served.contains(job) => {
            let (noun, served) = (
                if served.len() > 1 { "jobs" } else { "job" },
                served.join(", "),
            );
            let message = format!("this daemon serves {noun} {served}, the rank asks for {job}");
            let remedy =
                "correct the job's name, or start a daemon for that job on a socket of its own";
            Err(Fault::new(ErrorName::UnknownJob, message).remedy(remedy))
        }
        Some(job) => match job.parse::<batchweave_core::ids::JobName>() {
            Ok(_) => Ok(()),
            Err(why) => Err(Fault::new(ErrorName::BadHello, why.to_string())),
        },
        None => Ok(()),
    }
}

fn check_stream(hello: &Hello, stream: &StreamConfig) -> Result<(), Fault> {
    check_state(hello, stream)?;
    if stream.is_balanced() && !hello.forms.iter().any(|form| form == BALANCED) {
        let message = format!(
            "the slices of this stream are bins of equal cost, which the client ({}) does not know",
            hello.client
        );
        let remedy = "install the client of the release of this daemon";
        return Err(Fault::new(ErrorName::BadHello, message).remedy(remedy));
    }
    let expected = [
        ("slices", hello.slices, stream.slices),
        ("seq_len", hello.seq_len, stream.seq_len),
        (
            "rows_per_slice",
            hello.rows_per_slice,
            stream.rows_per_slice,
        ),
    ];
    let wrong: Vec<String> = expected
        .iter()
        .filter_map(|(name, want, is)| {
            Some((name, (*want)?, is)).filter(|(_, want, is)| want != *is)
        })
        .map(|(name, want, is)| format!("{name}: the stream has {is}, the trainer expects {want}"))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Fault::new(ErrorName::BadHello, wrong.join("; ")))
}

/// Checks that the rank's state is of this stream, or of the parent at the step where this fork begins.
fn check_state(hello: &Hello, stream: &StreamConfig) -> Result<(), Fault> {
    let ours = stream.stream_id.to_string();
    let Some(theirs) = hello.stream.as_ref().filter(|id| **id != ours) else {
        return Ok(());
    };
    let parent = stream.parent.as_ref();
    let Some(parent) = parent.filter(|p| p.stream.to_string() == *theirs) else {
        let message = format!("the state belongs to stream {theirs}, this daemon serves {ours}");
        return Err(Fault::new(ErrorName::OtherStream, message));
    };
    let (found, begins) = (hello.next_step, parent.step);
    if found == begins {
        return Ok(());
    }
    let message = format!(
        "the state is of step {found} of the parent of this stream, a fork that begins at step {begins}"
    );
    let remedy = format!(
        "load a checkpoint of the parent at step {begins}, or fork the parent at step {found}"
    );
    Err(Fault::new(ErrorName::OtherStream, message)
        .at_step(begins)
        .remedy(remedy))
}

fn check_position(step: Step, bounds: Bounds, stream: &StreamConfig) -> Result<(), Fault> {
    if step < bounds.watermark {
        return Err(below_first(stream, step, bounds.watermark));
    }
    if let Some(end) = bounds.end.filter(|end| step > *end) {
        let message = format!("the stream ended before step {end}: there will be no step {step}");
        return Err(Fault::new(ErrorName::StreamEnded, message).at_step(step));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
