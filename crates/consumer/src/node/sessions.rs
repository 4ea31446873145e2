//! Sessions in the state: admission, what their ranks release and report, and their end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use batchweave_arena::Peer;
use batchweave_core::ids::Step;
use batchweave_wire::{
    Begin, DaemonMessage, ErrorName, Fault, Hello, Progress, Release, WaitCause, Waiting, Welcome,
};
use tokio::sync::Notify;

use super::outbox::{Outbox, Outgoing, Owner};
use super::rewind::claimed;
use super::{LateStep, Node, State};
use crate::engine::{ReadCursor, SessionId};
use crate::job::admission::{self, Bounds, Refusal};
use crate::job::membership::{Member, Membership, membership_of, placed};
use crate::job::takeover::{self, RunningRank};
use crate::quarantine::QuarantineRanges;
use crate::resources::hex;
use crate::stream_head::Head;

/// Returns the bounds of the first step that the rank names; none where its start is found later.
fn bounds(membership: &Membership, hello: &Hello, head: &Head) -> Bounds {
    match membership {
        // Its start is found when the record is written.
        Membership::MustOpen(request) if request.begin != Begin::Stated => Bounds::NONE,
        Membership::MustWait(_) if hello.begin == Begin::Latest => Bounds::NONE,
        _ => Bounds {
            watermark: head.watermark,
            end: head.end,
        },
    }
}

impl Node {
    /// Admits the rank of `peer` and opens its session, or returns why not.
    pub(crate) fn join(
        self: &Arc<Self>,
        hello: &Hello,
        peer: Peer,
    ) -> Result<(SessionId, Welcome, Arc<Notify>), Refusal> {
        let (stream, instance) = (&self.resources.stream, self.resources.instance);
        admission::check(hello, stream, self.job.served())?;
        self.apply(|state| {
            let hello = &*placed(hello, &state.head.jobs);
            if let Some(fault) = state.contradicts(hello, None) {
                return Err(Refusal::Beyond(Box::new(fault)));
            }
            let membership = membership_of(hello, &state.head.jobs)?;
            let bounds = bounds(&membership, hello, &state.head);
            let slices = admission::slices_of(hello, stream, bounds)?;
            let quarantine = &state.head.quarantine;
            let (member, quarantine) = match membership {
                Membership::MustOpen(request) => {
                    let running = takeover::refuse(&request, state.running_ranks(), peer.pid);
                    return Err(running.map_or(Refusal::Open(request), |fault| {
                        Refusal::Running(Box::new(fault))
                    }));
                }
                Membership::MustWait(reason) => return Err(Refusal::Wait(reason)),
                Membership::NoJob => (None, Arc::new(QuarantineRanges::in_force_now(quarantine))),
                Membership::Open(job, attempt) => {
                    let ranges = QuarantineRanges::in_force_at(quarantine, attempt.opened);
                    let ranges = Arc::new(ranges);
                    let member =
                        Member::new(hello, job, attempt, slices.clone(), Arc::clone(&ranges))?;
                    (Some(Arc::new(member)), ranges)
                }
            };
            if let Some(fault) = state.contradicts(hello, member.as_deref()) {
                return Err(Refusal::Beyond(Box::new(fault)));
            }
            let id = state.new_session();
            let owner = Owner::new(peer.uid, hello, member.as_deref());
            state.end_replaced_session(&instance, hello, &owner, id);
            if let Some(member) = &member {
                state.admission.enter(id, member)?;
            }
            let welcome = Welcome {
                session: id,
                instance,
                stream: stream.stream_id.0,
                attempt: member.as_ref().map_or([0; 16], |m| m.id.0),
                attempt_number: member.as_ref().map(|m| m.attempt),
                next_step: quarantine.next_read(hello.next_step),
                end_step: state.head.end,
                slices: stream.slices,
                seq_len: stream.seq_len,
                rows_per_slice: stream.rows_per_slice,
                first_slice: slices.start,
                slice_count: slices.end - slices.start,
                credits: hello.credits,
            };
            let wake = state.open_session(hello, owner, welcome.clone(), member, quarantine);
            if let Some(outbox) = state.outboxes.get_mut(&id) {
                outbox.pid = peer.pid;
            }
            Ok((id, welcome, wake))
        })
    }
}

impl State {
    /// Returns the ranks of all attempts whose sessions are not over.
    fn running_ranks(&self) -> impl Iterator<Item = RunningRank<'_>> {
        let running = self.outboxes.values().filter(|outbox| !outbox.over);
        running.filter_map(|outbox| {
            Some(RunningRank {
                member: outbox.member.as_deref()?,
                pid: outbox.pid,
                next_step: outbox.reported.next_step,
            })
        })
    }

    /// Ends the earlier session that a hello replaces, if it has the same owner.
    fn end_replaced_session(
        &mut self,
        instance: &[u8; 16],
        hello: &Hello,
        owner: &Owner,
        new: SessionId,
    ) {
        let replaced = hello.replaces.as_ref();
        let old = replaced.filter(|old| old.instance == hex(instance));
        let Some(old) = old.map(|old| old.session) else {
            return;
        };
        match self.outboxes.get_mut(&old) {
            None => {}
            Some(outbox) if outbox.owner == *owner => {
                // The new hello says what is mapped by now.
                outbox.old_arena_mapped = false;
                let message = format!("session {new} of the same rank has replaced this one");
                let fault = Fault::new(ErrorName::DuplicateCoordinate, message);
                self.fail_session(old, fault.remedy("read on in the newer session"));
            }
            Some(_) => tracing::warn!(
                session = old,
                client = %hello.client,
                "a rank claims to replace a session of another rank: both sessions continue"
            ),
        }
    }

    pub(super) fn new_session(&mut self) -> SessionId {
        self.next_session += 1;
        self.next_session
    }

    /// Opens the session of `welcome`. Returns the notification of messages to send.
    pub(super) fn open_session(
        &mut self,
        hello: &Hello,
        owner: Owner,
        welcome: Welcome,
        member: Option<Arc<Member>>,
        quarantine: Arc<QuarantineRanges>,
    ) -> Arc<Notify> {
        if let Some(member) = &member {
            self.ranks.begin(welcome.session, member, hello);
        }
        let (id, next_step) = (welcome.session, welcome.next_step);
        let slices = welcome.first_slice..welcome.first_slice + welcome.slice_count;
        let mut outbox = Outbox::new(hello, owner, welcome, member);
        outbox.reached = claimed(hello, &self.head).map(|last| last.step);
        let wake = outbox.wake.clone();
        self.outboxes.insert(id, outbox);
        let cursor = ReadCursor::new(slices, next_step, hello.credits as usize, quarantine);
        self.engine.open(id, cursor);
        self.metrics.sessions.inc();
        self.metrics.sessions_total.inc();
        wake
    }

    /// Closes a session whose connection has ended: all its frames are free.
    pub(crate) fn close_session(&mut self, id: SessionId) {
        self.admission.leave(id);
        self.engine.close(id);
        self.states.close(id);
        if let Some(outbox) = self.outboxes.remove(&id) {
            if let Some(member) = &outbox.member {
                self.ranks.end(id, member);
            }
            self.forget_outdated();
            self.metrics.sessions.dec();
            // If the rank has a newer session already, the gauges belong to that one.
            let mut others = self.outboxes.values();
            if others.all(|other| other.dp_rank != outbox.dp_rank) {
                self.metrics.forget_rank(&outbox.dp_rank);
            }
        }
    }

    /// Sends nothing more and frees the coordinate; frames that the rank holds stay until released.
    pub(crate) fn stop_session(&mut self, id: SessionId) {
        self.admission.leave(id);
        if let Some(outbox) = self.outboxes.get_mut(&id) {
            outbox.over = true;
        }
        self.engine.stop(id);
    }

    /// Returns whether a rank uses no frame.
    pub(crate) fn holds_nothing(&self, id: SessionId) -> bool {
        let cursor = self.engine.session(id);
        cursor.is_none_or(|cursor| cursor.held_steps() == 0)
    }

    /// Ends a session with an error. Returns false if it was over before; then nothing is sent.
    pub(crate) fn fail_session(&mut self, id: SessionId, fault: Fault) -> bool {
        let running = self.outboxes.get(&id).is_some_and(|outbox| !outbox.over);
        self.stop_session(id);
        if running {
            self.send(id, DaemonMessage::Error(fault));
        }
        running
    }

    /// Fails every session whose next step is this unreadable one.
    pub(crate) fn fail_step(&mut self, step: Step, fault: &Fault) {
        let at = |cursor: &ReadCursor| cursor.next.step == step;
        let ids: Vec<SessionId> = self
            .ids()
            .filter(|id| self.engine.active_at(*id, at))
            .collect();
        for id in ids {
            self.fail_session(id, fault.clone());
        }
    }

    /// Queues a message to a rank.
    pub(crate) fn send(&mut self, id: SessionId, message: DaemonMessage) {
        if let Some(outbox) = self.outboxes.get_mut(&id) {
            outbox.send(message);
        }
    }

    /// Takes the queued messages, and the time since which a frame is among them.
    pub(crate) fn take_messages(&mut self, id: SessionId) -> (VecDeque<Outgoing>, Option<Instant>) {
        let take = |outbox: &mut Outbox| (std::mem::take(&mut outbox.queue), outbox.ready.take());
        self.outboxes.get_mut(&id).map(take).unwrap_or_default()
    }

    /// Frees the frames that a rank released; fails if it does not hold one of them.
    pub(crate) fn release(&mut self, id: SessionId, release: &Release) -> Result<(), Fault> {
        let Some(outbox) = self.outboxes.get_mut(&id) else {
            return Ok(());
        };
        for delivery in &release.frames {
            let Some(frame) = outbox.deliveries.remove(delivery) else {
                let message =
                    format!("release of frame {delivery}, which session {id} does not hold");
                return Err(Fault::new(ErrorName::BadMessage, message));
            };
            self.engine.release(id, frame);
        }
        self.received(id, release.next_step);
        Ok(())
    }

    /// Notes a rank's report of its position and waiting time. Time waited since its last report counts for
    /// the cause that was observed last, or is observed now, or is `short` if none was observed in time.
    pub(crate) fn progress(&mut self, id: SessionId, progress: &Progress) {
        let Some(outbox) = self.outboxes.get_mut(&id) else {
            return;
        };
        let more = progress.waited_us.saturating_sub(outbox.reported.waited_us);
        let restart = std::mem::take(&mut outbox.follows_another)
            .then_some(WaitCause::DaemonRestarting.name());
        let before = restart.or(outbox.cause.take());
        (outbox.reported.waited_us, outbox.reported.waiting) =
            (progress.waited_us, progress.waiting);
        self.received(id, progress.next_step);
        let now = self.late(id).map(|late| late.cause.name());
        let Some(outbox) = self.outboxes.get_mut(&id) else {
            return;
        };
        outbox.cause = now;
        let cause = before.or(now.filter(|_| progress.waiting));
        let labels = [outbox.dp_rank.as_str(), cause.unwrap_or("short")];
        let waits = self.metrics.wait_seconds.with_label_values(&labels);
        waits.inc_by(more as f64 / 1e6);
    }

    /// Notifies a rank that its next step is late.
    pub(crate) fn send_waiting(&mut self, id: SessionId, late: &LateStep) {
        if let Some(outbox) = self.outboxes.get_mut(&id) {
            outbox.cause = Some(late.cause.name());
        }
        if late.cause == WaitCause::Producing {
            // Producers may be held back until this progress is stored.
            self.progress_at_once(id);
        }
        let LateStep {
            step,
            cause,
            detail,
        } = late.clone();
        let waiting = Waiting {
            step,
            cause,
            detail,
        };
        self.send(id, DaemonMessage::Waiting(waiting));
    }
}
