//! The trainer of one data coordinate in one attempt, a rank of the job's daemons. It connects, reads
//! steps from shared memory, releases them and marks its checkpoints. It outlives its daemons, and
//! sometimes ends and reconnects, on the same machine or another, sometimes from an earlier checkpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{AttemptId, AttemptNo, Step, Version};
use batchweave_store::Store;
use batchweave_wire::{
    ClientMessage, DaemonMessage, Hello, Mode, Parent, Progress, Replaces, STAGES, Welcome,
};

use super::job::Job;
use super::reports::{Reports, mark};
use super::socket::{CompleteStep, Incoming, Link};
use crate::actor::Actor;
use crate::evidence::{Marked, Received, Session};
use crate::world::shared::Shared;

/// The pause between two tries to connect.
pub(super) const AGAIN: Duration = Duration::from_millis(50);
/// An idle rank reports its progress after this time.
const IDLE: Duration = Duration::from_millis(20);
/// The interval of its further reports.
const IDLE_AGAIN: Duration = Duration::from_millis(200);
/// A rank that is done waits this long at most for its last marks.
const MARKS_WITHIN: Duration = Duration::from_secs(5);
/// The steps that a rank may hold or have queued.
const CREDITS: u32 = 3;
/// A stream that has ended may be unsealed: a rank retries after this time.
pub(super) const ENDED: Duration = Duration::from_secs(1);

/// The end of a rank, other than death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It has read all its steps.
    Done,
    /// A newer attempt is open.
    Superseded,
    /// The job is closed.
    Closed,
    /// The attempt's start is reclaimed; this is the oldest readable step.
    Refused(Step),
    /// The attempt never opened, or another error that a new attempt may avoid.
    Failed(String),
}

/// The attempt that a rank asks for, the same for all its ranks.
#[derive(Debug, Clone)]
pub(super) struct AttemptRequest {
    pub(super) opened: Version,
    pub(super) id: AttemptId,
    pub(super) start: Step,
    /// The attempt whose checkpoint is loaded.
    pub(super) parent: Option<(AttemptNo, AttemptId)>,
    pub(super) dp_size: u32,
}

/// One rank of an attempt.
pub(super) struct Rank {
    pub(super) shared: Arc<Shared>,
    pub(super) job: Arc<Job>,
    pub(super) wanted: AttemptRequest,
    pub(super) coordinate: u32,
    pub(super) actor: Arc<Actor>,
    pub(super) store: Arc<dyn Store>,
    /// The machine on which it runs.
    pub(super) at: usize,
    pub(super) position: Position,
}

/// The state that a rank keeps over its sessions.
#[derive(Debug)]
pub(super) struct Position {
    /// The first step that it has not received.
    pub(super) next: Step,
    /// The step of its last checkpoint.
    saved: Step,
    /// Its attempt, once a daemon has accepted it.
    pub(super) attempt: Option<AttemptNo>,
    replaces: Option<Replaces>,
    /// Marks whose storage is not confirmed.
    marks: VecDeque<Step>,
    pub(super) reports: Reports,
}

impl Position {
    pub(super) fn at(start: Step) -> Self {
        Self {
            next: start,
            saved: start,
            attempt: None,
            replaces: None,
            marks: VecDeque::new(),
            reports: Reports::default(),
        }
    }
}

/// The reason for the end of a session.
pub(super) enum SessionEnd {
    /// The daemon is gone, or reported an error that a retry may avoid.
    Again(Duration),
    /// The rank ends here and reconnects.
    Moves,
    Ends(End),
}

/// A session, seen by the rank.
struct Open {
    link: Link,
    /// Its index in the evidence.
    number: Option<usize>,
    /// The previous step, whose frames are held until the next one is trained.
    held: Option<CompleteStep>,
    since_idle: Option<Duration>,
}

impl Rank {
    pub(super) async fn run(mut self) -> End {
        loop {
            let pause = match self.connect().await {
                Some(link) => match self.session(link).await {
                    SessionEnd::Ends(end) => return end,
                    SessionEnd::Again(pause) => pause,
                    SessionEnd::Moves => self.moves(),
                },
                None => AGAIN,
            };
            self.actor.sleep(pause).await;
        }
    }

    async fn connect(&mut self) -> Option<Link> {
        let socket = self.job.nodes.get(self.at)?.connect();
        let mut link = Link::new(socket?);
        // A frozen rank connects late.
        self.actor.awake().await;
        self.hello(&mut link);
        Some(link)
    }

    fn hello(&self, link: &mut Link) {
        let (wanted, position) = (&self.wanted, &self.position);
        let mut hello = Hello::new("rank", position.next);
        hello.forms = vec![STAGES.to_owned()];
        hello.job = Some(self.job.name.to_string());
        hello.attempt = Some(wanted.id.to_string());
        hello.parent = wanted.parent.map(|(attempt, id)| Parent {
            attempt,
            id: id.to_string(),
            step: wanted.start,
        });
        (hello.dp_rank, hello.dp_size) = (self.coordinate, wanted.dp_size);
        hello.global_rank = Some(self.coordinate);
        if position.attempt.is_some() {
            hello.mode = Mode::Resume;
        }
        hello.credits = CREDITS;
        hello.stream = Some(self.shared.stream_id().to_string());
        hello.replaces.clone_from(&position.replaces);
        link.send(&ClientMessage::Hello(hello));
    }

    /// Ends like a process, and reconnects from its last checkpoint or its last step.
    fn moves(&mut self) -> Duration {
        let machines = self.job.nodes.len();
        let (elsewhere, back) = self.actor.draw(|draw| (draw.chance(600), draw.chance(500)));
        if elsewhere {
            self.at = (self.at + 1) % machines;
        }
        let position = &mut self.position;
        // One rank's mark counts for all: it may be above the others' checkpoints.
        if back && !self.job.plan.rank0 {
            position.next = position.saved;
        }
        (position.replaces, position.marks) = (None, VecDeque::new());
        position.reports.go_back(position.next);
        let text = format!(
            "comes back at step {} on machine {}",
            position.next, self.at
        );
        self.shared.store.note(&self.actor, text);
        self.actor.draw(|draw| draw.duration(IDLE, 10 * AGAIN))
    }

    async fn session(&mut self, link: Link) -> SessionEnd {
        let mut open = Open {
            link,
            number: None,
            held: None,
            since_idle: None,
        };
        let over = self.run_session(&mut open).await;
        if matches!(over, SessionEnd::Ends(End::Done)) {
            open.link.send(&ClientMessage::Bye);
        }
        over
    }

    async fn run_session(&mut self, open: &mut Open) -> SessionEnd {
        loop {
            if let Some(end) = self.done(open).await {
                return end;
            }
            let pause = open.since_idle.map_or(IDLE, |_| IDLE_AGAIN);
            let packet = tokio::select! {
                biased;
                packet = open.link.receive() => packet,
                () = self.actor.sleep(pause) => {
                    self.idle(open);
                    continue;
                }
            };
            self.actor.awake().await;
            let Some(packet) = packet else {
                return SessionEnd::Again(AGAIN);
            };
            match open.link.handle_packet(packet) {
                Incoming::Nothing => {}
                Incoming::Wrong(text) => return self.wrong("protocol", text),
                Incoming::Step(step) => {
                    open.since_idle = None;
                    if let Some(over) = self.train(open, step).await {
                        return over;
                    }
                }
                Incoming::Message(message) => {
                    if let Some(over) = self.message(open, message).await {
                        return over;
                    }
                }
            }
        }
    }

    /// Reports progress in intervals: producers may wait for it.
    fn idle(&mut self, open: &mut Open) {
        let now = self.actor.now();
        let since = *open.since_idle.get_or_insert(now);
        if open.number.is_none() {
            return;
        }
        if let Some(held) = open.held.take() {
            open.link.release(self.position.next, held.frames());
        }
        if since == now || now.saturating_sub(since) >= Duration::from_secs(1) {
            open.since_idle = Some(now.max(since + IDLE));
            open.link.send(&ClientMessage::Progress(Progress {
                next_step: self.position.next,
                waited_us: now.as_micros() as u64,
                waiting: true,
            }));
        }
    }

    /// Returns the end if the rank has read all its steps, after waiting for its marks.
    async fn done(&mut self, open: &mut Open) -> Option<SessionEnd> {
        let next = self.position.next;
        let abandons = self.job.plan.abandons.filter(|last| next >= *last);
        open.number
            .filter(|_| abandons.is_some() || self.is_past_the_end())?;
        if abandons.is_some() {
            return Some(SessionEnd::Ends(End::Done));
        }
        let frames = open.held.take().map(|step| step.frames());
        open.link
            .release(self.position.next, frames.unwrap_or_default());
        let until = self.actor.now() + MARKS_WITHIN;
        while !self.position.marks.is_empty() && self.actor.now() < until {
            let packet = tokio::select! {
                biased;
                packet = open.link.receive() => packet?,
                () = self.actor.sleep(IDLE) => continue,
            };
            self.actor.awake().await;
            if let Incoming::Message(message) = open.link.handle_packet(packet)
                && let Some(over) = self.message(open, message).await
            {
                return Some(over);
            }
        }
        Some(SessionEnd::Ends(End::Done))
    }

    async fn message(&mut self, open: &mut Open, message: DaemonMessage) -> Option<SessionEnd> {
        match message {
            DaemonMessage::Welcome(welcome) => self.welcome(open, &welcome),
            DaemonMessage::EndOfStream(_) if !self.is_past_the_end() => {
                return Some(SessionEnd::Again(ENDED));
            }
            DaemonMessage::Error(fault) => return Some(self.fault(fault).await),
            DaemonMessage::Marked(step) => self.marked(step),
            DaemonMessage::Reported(count) => self.position.reports.stored(count),
            DaemonMessage::MarkRefused(fault) => {
                self.position.marks.retain(|mark| Some(*mark) != fault.step);
            }
            _ => {}
        }
        None
    }

    fn welcome(&mut self, open: &mut Open, welcome: &Welcome) {
        let position = &mut self.position;
        position.replaces = Some(Replaces {
            instance: format!("{:032x}", u128::from_be_bytes(welcome.instance)),
            session: welcome.session,
        });
        if open.number.is_some() {
            // Quarantined steps are skipped.
            position.next = welcome.next_step;
            return;
        }
        let number = welcome.attempt_number.unwrap_or_default();
        if position.attempt.is_none() {
            let text = format!("attempt {number} starts at {}", self.wanted.start);
            self.shared.store.note(&self.actor, text);
            let (start, dp, id) = (self.wanted.start, self.wanted.dp_size, self.wanted.id);
            self.job
                .restart_points(|points| points.opened(number, (start, dp, id)));
        }
        position.attempt = Some(number);
        open.number = Some(self.shared.session(Session {
            job: self.job.name.clone(),
            attempt: self.wanted.id,
            coordinate: self.coordinate,
            instance: format!("{:032x}", u128::from_be_bytes(welcome.instance)),
            next_step: position.next,
            at: self.shared.store.time.now(),
        }));
        position.next = welcome.next_step;
        position.reports.send_again(&open.link, position.next);
        for mark in position.marks.clone() {
            self.send_mark(open, mark);
        }
    }

    async fn train(&mut self, open: &mut Open, step: CompleteStep) -> Option<SessionEnd> {
        let Some(session) = open.number else {
            return Some(self.wrong("protocol", "a batch before the welcome".to_owned()));
        };
        self.actor.sleep(self.job.plan.pace).await;
        let Some(sums) = open.link.sums(&step) else {
            return Some(self.wrong("protocol", format!("step {} is nowhere", step.step)));
        };
        let before = self.position.next;
        self.shared.received(Received {
            session,
            job: self.job.name.clone(),
            attempt: self.wanted.id,
            coordinate: self.coordinate,
            step: step.step,
            sums,
            at: self.shared.store.time.now(),
        });
        self.position.next = step.step + 1;
        let frames = open.held.replace(step).map(|held| held.frames());
        let next = self.position.next;
        open.link.release(next, frames.unwrap_or_default());
        self.position.reports.add(&open.link, next - 1, next);
        let plan = &self.job.plan;
        if before / plan.mark_every != next / plan.mark_every {
            self.position.saved = next;
            self.position.marks.push_back(next);
            self.send_mark(open, next);
        }
        let moves = self.actor.draw(|draw| draw.chance(plan.moves));
        moves.then_some(SessionEnd::Moves)
    }

    fn send_mark(&self, open: &Open, step: Step) {
        let stream = self.shared.stream_id();
        open.link.send(&mark(stream, self.wanted.id, step));
    }

    fn marked(&mut self, step: Step) {
        self.position.marks.retain(|mark| *mark != step);
        let (rank0, attempt) = (self.job.plan.rank0, self.position.attempt);
        // In this mode the other ranks' marks are not stored.
        let Some(attempt) = attempt.filter(|_| !rank0 || self.coordinate == 0) else {
            return;
        };
        let coordinate = (!rank0).then_some(self.coordinate);
        self.job
            .restart_points(|points| points.marked(attempt, step, coordinate));
        self.shared.marked(Marked {
            job: self.job.name.clone(),
            attempt: self.wanted.id,
            coordinate: self.coordinate,
            step,
            at: self.shared.store.time.now(),
        });
    }
}
