//! A rank's membership in an attempt of its job, derived from the folded log alone, so that
//! all nodes agree.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::{AttemptId, AttemptNo, JobName, Step, StreamId, Version};
use batchweave_core::manifest::entry::{Inherited, Parent};
use batchweave_core::manifest::state::{AttemptState, JobState};
use batchweave_core::stream::StreamConfig;
use batchweave_wire::{Begin, ErrorName, Fault, Hello, Mode, WaitCause};

use crate::quarantine::QuarantineRanges;

/// A rank of an attempt, to which deliveries, marks and progress belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) job: JobName,
    /// The version that opened this incarnation of the job.
    pub(crate) opened: Version,
    pub(crate) attempt: AttemptNo,
    pub(crate) id: AttemptId,
    /// The attempt whose checkpoint it loaded.
    pub(crate) parent: Option<Parent>,
    pub(crate) start: Step,
    pub(crate) dp_rank: u32,
    pub(crate) dp_size: u32,
    /// The global rank, if its hello has one.
    pub(crate) rank: Option<u32>,
    /// Whether other ranks may read the same data coordinate.
    pub(crate) shared: bool,
    /// The slices that it reads of every step.
    pub(crate) slices: Range<u32>,
    /// The quarantined steps, which its attempt passes over.
    pub(crate) quarantine: Arc<QuarantineRanges>,
}

impl Member {
    /// Returns the member for a hello to an open attempt; fails if the name of the job is invalid.
    pub(crate) fn new(
        hello: &Hello,
        job: &JobState,
        attempt: &AttemptState,
        slices: Range<u32>,
        quarantine: Arc<QuarantineRanges>,
    ) -> Result<Self, Fault> {
        Ok(Self {
            job: parsed(hello.job.as_deref().unwrap_or_default())?,
            opened: job.opened,
            attempt: attempt.number,
            id: attempt.id,
            parent: attempt.parent,
            start: attempt.start,
            dp_rank: hello.dp_rank,
            dp_size: attempt.dp_size,
            rank: hello.global_rank,
            shared: hello.shared,
            slices,
            quarantine,
        })
    }
}

/// An attempt that this daemon is to open, by a record in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttemptRequest {
    pub(crate) job: JobName,
    pub(crate) opened: Version,
    pub(crate) id: AttemptId,
    /// The attempt and step of the checkpoint that the ranks restored, according to rank 0. Checked against
    /// the log only when the record is written.
    pub(crate) parent: Option<(AttemptNo, AttemptId, Step)>,
    /// The stream of that checkpoint.
    pub(crate) stream: Option<StreamId>,
    pub(crate) start: Step,
    /// The rank's statement of the start.
    pub(crate) begin: Begin,
    pub(crate) dp_size: u32,
    /// It is not opened while ranks of another attempt of the job run here.
    pub(crate) yields: bool,
}

impl AttemptRequest {
    /// Returns the checkpoint of the stream that `stream` is a fork of, for the record; `None` if it is of another.
    pub(crate) fn inherited(&self, stream: &StreamConfig) -> Option<Inherited> {
        let parent = stream.parent.as_ref()?.stream;
        let (attempt, id, step) = self.parent.filter(|_| self.stream == Some(parent))?;
        Some(Inherited {
            stream: parent,
            attempt,
            id,
            step,
        })
    }

    /// Returns the parent for the record; `None` if it is not an attempt of this incarnation of the job.
    pub(crate) fn parent_in(&self, job: &JobState) -> Option<Parent> {
        let (attempt, id, step) = self.parent?;
        let found = job.attempt(attempt)?;
        (found.id == id).then_some(Parent { attempt, step })
    }
}

/// The reason why a rank waits, and the fault that it receives when the wait times out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitReason {
    pub(crate) cause: WaitCause,
    pub(crate) detail: String,
    pub(crate) fault: Fault,
}

/// The membership of a rank according to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Membership<'j> {
    /// It reads without a job.
    NoJob,
    /// Its attempt is open.
    Open(&'j JobState, &'j AttemptState),
    /// This daemon must open its attempt.
    MustOpen(Box<AttemptRequest>),
    /// Others must open its job or attempt.
    MustWait(Box<WaitReason>),
}

/// Returns the hello at the start of its attempt if it asks for the newest restart point: once the attempt is in
/// the log, that is its start.
pub(crate) fn placed<'h>(hello: &'h Hello, jobs: &BTreeMap<JobName, JobState>) -> Cow<'h, Hello> {
    let attempt = || {
        let job = jobs.get(&hello.job.as_ref()?.parse::<JobName>().ok()?)?;
        let id: AttemptId = hello.attempt.as_ref()?.parse().ok()?;
        job.attempts.iter().find(|attempt| attempt.id == id)
    };
    match (hello.begin, attempt()) {
        (Begin::Latest, Some(attempt)) => Cow::Owned(Hello {
            next_step: attempt.start,
            begin: Begin::Stated,
            ..hello.clone()
        }),
        _ => Cow::Borrowed(hello),
    }
}

/// Finds the attempt that a rank's hello names; fails if the hello contradicts the attempt's record, or if the
/// attempt is superseded.
pub(crate) fn membership_of<'j>(
    hello: &Hello,
    jobs: &'j BTreeMap<JobName, JobState>,
) -> Result<Membership<'j>, Fault> {
    let Some(job) = &hello.job else {
        return Ok(Membership::NoJob);
    };
    let name: JobName = parsed(job)?;
    let Some(id) = &hello.attempt else {
        let message = format!("a rank of job {name} came without an attempt");
        return Err(Fault::new(ErrorName::NoAttempt, message));
    };
    let id: AttemptId = parsed(id)?;
    let Some(state) = jobs.get(&name) else {
        return Ok(Membership::MustWait(Box::new(job_not_open(&name))));
    };
    let found = state.attempts.iter().find(|attempt| attempt.id == id);
    if let Some(attempt) = found {
        if let Some(fault) = superseded(&name, attempt.number, state) {
            return Err(fault);
        }
        check_against_record(hello, &name, attempt)?;
        return Ok(Membership::Open(state, attempt));
    }
    if hello.leads() && hello.mode == Mode::Join {
        return request_for(hello, name, id, state)
            .map(|request| Membership::MustOpen(Box::new(request)));
    }
    Ok(Membership::MustWait(Box::new(not_opened(&name, id, state))))
}

fn parsed<T: std::str::FromStr<Err = batchweave_core::ids::IdError>>(
    text: &str,
) -> Result<T, Fault> {
    text.parse()
        .map_err(|why: T::Err| Fault::new(ErrorName::BadHello, why.to_string()))
}

/// Builds the request to open the attempt that rank 0's hello describes.
fn request_for(
    hello: &Hello,
    job: JobName,
    id: AttemptId,
    state: &JobState,
) -> Result<AttemptRequest, Fault> {
    let parent = hello
        .parent
        .as_ref()
        .map(|p| Ok::<_, Fault>((p.attempt, parsed(&p.id)?, p.step)));
    Ok(AttemptRequest {
        job,
        opened: state.opened,
        id,
        parent: parent.transpose()?,
        stream: hello.stream.as_deref().map(parsed).transpose()?,
        start: hello.next_step,
        begin: hello.begin,
        dp_size: hello.dp_size,
        yields: hello.yields,
    })
}

fn job_not_open(job: &JobName) -> WaitReason {
    let detail = format!("job {job} is not open");
    let remedy = format!(
        "open it with `batchweave job open {job}`, or set job.open = true in the daemon's config"
    );
    WaitReason {
        cause: WaitCause::JobNotOpen,
        fault: Fault::new(ErrorName::JobNotOpen, detail.clone()).remedy(remedy),
        detail,
    }
}

fn not_opened(job: &JobName, id: AttemptId, state: &JobState) -> WaitReason {
    let newest = match state.attempts.last() {
        Some(attempt) => format!("its newest attempt is {}, {}", attempt.number, attempt.id),
        None => "it has no attempt yet".to_owned(),
    };
    let detail = format!("rank 0 has not opened attempt {id} of job {job}: {newest}");
    WaitReason {
        cause: WaitCause::AttemptNotOpen,
        fault: Fault::new(ErrorName::AttemptNotOpened, detail.clone()),
        detail,
    }
}

/// Returns the fault of ranks of `attempt` if a newer attempt exists.
pub(crate) fn superseded(job: &JobName, attempt: AttemptNo, state: &JobState) -> Option<Fault> {
    let newest = state.attempts.last()?;
    (newest.number > attempt).then(|| {
        let message = format!(
            "attempt {attempt} of job {job} is superseded by attempt {} ({}), which starts at step {} with {} data ranks",
            newest.number, newest.id, newest.start, newest.dp_size
        );
        Fault::new(ErrorName::AttemptSuperseded, message)
    })
}

/// Returns the fault of a rank whose incarnation of the job is closed.
pub(crate) fn closed(member: &Member, jobs: &BTreeMap<JobName, JobState>) -> Option<Fault> {
    let Member { job, opened, .. } = member;
    let message = match jobs.get(job) {
        Some(state) if state.opened == *opened => return None,
        Some(state) => format!(
            "job {job} was closed and opened anew: it is {job}@{} now, this rank reads {job}@{opened}",
            state.opened
        ),
        None => format!("job {job} was closed"),
    };
    Some(Fault::new(ErrorName::JobClosed, message))
}

/// Fails if the hello differs from the attempt's record in its size or its step.
fn check_against_record(hello: &Hello, job: &JobName, attempt: &AttemptState) -> Result<(), Fault> {
    let mut wrong = Vec::new();
    if hello.dp_size != attempt.dp_size {
        wrong.push(format!(
            "it says dp_size {}, the attempt has {}",
            hello.dp_size, attempt.dp_size
        ));
    }
    match hello.mode {
        Mode::Join if hello.next_step != attempt.start => wrong.push(format!(
            "it joins at step {}, the attempt starts at {}",
            hello.next_step, attempt.start
        )),
        Mode::Resume if hello.next_step < attempt.start => wrong.push(format!(
            "it resumes at step {}, before the attempt's start {}",
            hello.next_step, attempt.start
        )),
        _ => {}
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!(
        "dp_rank {} differs from attempt {} ({}) of job {job} as its record has it: {}",
        hello.dp_rank,
        attempt.number,
        attempt.id,
        wrong.join("; ")
    );
    Err(Fault::new(ErrorName::AttemptDisagrees, message).at_step(hello.next_step))
}

#[cfg(test)]
mod tests;
