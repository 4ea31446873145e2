//! Whether a rank may join, and what it then reads: the checks of its hello against the stream, pure.
//! What its job and attempt say is judged in `member`. On a node, each data coordinate of an attempt
//! is read by one live session, or by several that all say that they share it.

use std::collections::BTreeMap;
use std::ops::Range;

use batchweave_core::ids::{AttemptId, JobName, Step};
use batchweave_core::mesh::{self, MeshError};
use batchweave_core::stream::StreamConfig;
use batchweave_wire::{ErrorName, Fault, Hello};

use crate::engine::SessionId;
use crate::job::attempts::below_watermark;
use crate::job::membership::{Hold, Member, Wish};

/// What is known of the stream's ends when a rank says hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The oldest step that may be read.
    pub(crate) watermark: Step,
    /// The first step that will never be, when that is decided.
    pub(crate) end: Option<Step>,
}

/// Why a rank may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another live session reads the coordinate. It may be about to end: worth a short wait.
    Occupied(SessionId),
    /// Its attempt is to be opened first, by this daemon.
    Open(Box<Wish>),
    /// Others have to act first.
    Wait(Box<Hold>),
    /// It has what the log, as far as it is known here, does not hold.
    Beyond(Box<Fault>),
    /// For good.
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

/// Who reads a coordinate: where ranks share it, they are told apart by their global ranks.
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
    /// Admits `session` or says who reads its coordinate. Call `leave` when it is over.
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

    /// A session is over, or follows no more.
    pub(crate) fn leave(&mut self, session: SessionId) {
        self.live.retain(|_, readers| {
            readers.remove(&session);
            !readers.is_empty()
        });
    }
}

/// Told after waiting in vain for the other session to end.
pub(crate) fn occupied(hello: &Hello, other: SessionId) -> Fault {
    let message = format!(
        "session {other} already reads dp_rank {} of this attempt",
        hello.dp_rank
    );
    let remedy = "give every rank its own coordinate, or pass the mesh (or shared=True) on all ranks that read \
                  one together, each with its global rank";
    Fault::new(ErrorName::DuplicateCoordinate, message).remedy(remedy)
}

/// What a hello says of itself, the daemon's job and the stream; not of step and mesh.
pub(crate) fn check(hello: &Hello, stream: &StreamConfig, served_job: &str) -> Result<(), Fault> {
    hello
        .check()
        .map_err(|why| Fault::new(ErrorName::BadHello, why))?;
    check_job(hello, served_job)?;
    check_stream(hello, stream)
}

/// The rank's slices, or why it can't read from its step or in its mesh.
pub(crate) fn slices_of(
    hello: &Hello,
    stream: &StreamConfig,
    bounds: Bounds,
) -> Result<Range<u32>, Fault> {
    check_position(hello.next_step, bounds)?;
    mesh::slices_of(stream.slices, hello.dp_size, hello.dp_rank).map_err(|why| misfit(&why))
}

/// The remedy stands in the fault's own place, so not in its message.
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

fn check_job(hello: &Hello, served: &str) -> Result<(), Fault> {
    match &hello.job {
        Some(job) if !served.is_empty() && job != served => {
            let message = format!("this daemon serves job {served}, the rank asks for {job}");
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
    let ours = stream.stream_id.to_string();
    if let Some(theirs) = hello.stream.as_ref().filter(|id| **id != ours) {
        let message = format!("the state belongs to stream {theirs}, this daemon serves {ours}");
        return Err(Fault::new(ErrorName::OtherStream, message));
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

fn check_position(step: Step, bounds: Bounds) -> Result<(), Fault> {
    if step < bounds.watermark {
        return Err(below_watermark(step, bounds.watermark));
    }
    if let Some(end) = bounds.end.filter(|end| step > *end) {
        let message = format!("the stream ended before step {end}: there will be no step {step}");
        return Err(Fault::new(ErrorName::StreamEnded, message).at_step(step));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
