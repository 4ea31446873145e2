//! States of steps until the daemon has stored them; sent again in a new session.
//!
//! A daemon of an earlier release would end the session at a report: so nothing is sent before the daemon has said, on
//! a connection of its own, that it takes reports. Marks wait for the states before them.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use batchweave_arena::Connection;
use batchweave_wire::{
    ClientMessage, DaemonMessage, ErrorName, MESSAGE_BYTES_MAX, Report, STATES_MAX, StepStates,
    WireError,
};

use crate::ClientError;
use crate::session::Session;

/// Steps that are sent together, unless a mark or a second passes before.
const TOGETHER: usize = 64;
/// Shortest interval between two connections that ask.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Whether the session's daemon takes reports.
enum Support {
    /// Not asked since this time.
    Unknown(Option<Instant>),
    Asked(Connection),
    Taken,
    NotTaken,
}

/// States without a confirmation, oldest first.
pub(crate) struct Reports {
    waiting: VecDeque<StepStates>,
    /// Steps in `waiting`, for their number.
    steps: usize,
    /// The states of each report that this session has sent and the daemon has not confirmed.
    sent: VecDeque<Vec<StepStates>>,
    confirmed: u64,
    support: Support,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            steps: 0,
            sent: VecDeque::new(),
            confirmed: 0,
            support: Support::Unknown(None),
        }
    }
}

impl Reports {
    /// Adds the state of a step; returns whether it is time to send.
    pub(crate) fn add(&mut self, step: u64, left_out: Option<&str>) -> bool {
        if matches!(self.support, Support::NotTaken) {
            return false;
        }
        self.steps += 1;
        match self.waiting.back_mut() {
            Some(last) if last.to == step && last.left_out.as_deref() == left_out => {
                last.to += 1;
            }
            _ => self.waiting.push_back(StepStates {
                from: step,
                to: step + 1,
                left_out: left_out.map(str::to_owned),
            }),
        }
        self.steps >= TOGETHER || self.taken().is_none()
    }

    /// Whether states are not sent yet.
    pub(crate) fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether the daemon takes reports; `None` while that is not known.
    pub(crate) fn taken(&self) -> Option<bool> {
        match self.support {
            Support::Taken => Some(true),
            Support::NotTaken => Some(false),
            Support::Unknown(_) | Support::Asked(_) => None,
        }
    }

    /// Removes the states of the session's first `count` reports, which the daemon has stored.
    pub(crate) fn stored(&mut self, count: u64) {
        while self.confirmed < count && self.sent.pop_front().is_some() {
            self.confirmed += 1;
        }
    }

    /// Sends all states again, in a new session with perhaps another daemon.
    pub(crate) fn send_again(&mut self) {
        let sent: Vec<StepStates> = self.sent.drain(..).flatten().collect();
        for states in sent.into_iter().rev() {
            self.waiting.push_front(states);
        }
        self.confirmed = 0;
        self.support = Support::Unknown(None);
    }

    /// Sends the states that wait, as far as the socket has space; returns whether none are left.
    pub(crate) fn send(
        &mut self,
        session: &Session,
        socket: &Path,
        instance: &str,
    ) -> Result<bool, ClientError> {
        if self.waiting.is_empty() {
            return Ok(true);
        }
        self.ask(session, socket, instance)?;
        match self.support {
            Support::Taken => {}
            Support::NotTaken => {
                self.waiting.clear();
                return Ok(true);
            }
            Support::Unknown(_) | Support::Asked(_) => return Ok(false),
        }
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(STATES_MAX);
            let states: Vec<_> = self.waiting.range(..count).cloned().collect();
            let message = ClientMessage::Report(Report {
                next_step: session.link.next_step.load(Ordering::Relaxed),
                states: states.clone(),
                ..Report::default()
            });
            if !session.send(&message)? {
                return Ok(false);
            }
            self.waiting.drain(..count);
            self.sent.push_back(states);
        }
        self.steps = 0;
        Ok(true)
    }

    /// Asks the daemon whether it takes reports, without waiting for the answer.
    fn ask(&mut self, session: &Session, socket: &Path, instance: &str) -> Result<(), ClientError> {
        if let Support::Unknown(asked) = self.support {
            if asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
                return Ok(());
            }
            self.support = Support::Unknown(Some(Instant::now()));
            let describe = ClientMessage::Describe.encode();
            let describe = describe.map_err(|why| session.bad(why.to_string()))?;
            let Ok(connection) = Connection::connect(socket, Instant::now()) else {
                return Ok(());
            };
            if connection.send(&describe, None).is_ok() {
                self.support = Support::Asked(connection);
            }
        }
        let Support::Asked(connection) = &self.support else {
            return Ok(());
        };
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let packet = match connection.recv(&mut buffer) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Ok(Some(packet)) => packet,
                // It is gone: another one may answer.
                Ok(None) | Err(_) => break,
            };
            let answer = DaemonMessage::decode(&buffer[..packet.bytes]);
            match answer.map_err(|why: WireError| session.bad(why.to_string()))? {
                DaemonMessage::Waiting(_) => {}
                DaemonMessage::StreamInfo(info) => match info.reports {
                    Some(run) if run == instance => {
                        self.support = Support::Taken;
                        return Ok(());
                    }
                    // Another daemon at the same path: the session's one ends soon.
                    Some(_) => break,
                    None => {
                        self.support = Support::NotTaken;
                        return Ok(());
                    }
                },
                // A daemon without `describe`.
                DaemonMessage::Error(fault)
                    if fault.known_name() == Some(ErrorName::BadMessage) =>
                {
                    self.support = Support::NotTaken;
                    return Ok(());
                }
                _ => break,
            }
        }
        self.support = Support::Unknown(Some(Instant::now()));
        Ok(())
    }
}
