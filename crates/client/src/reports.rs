//! States of steps, and the losses of trained ones, until the daemon has stored them; sent again in a new session.
//!
//! A daemon of an earlier release would end the session at a report: so nothing is sent before the daemon has said, on
//! a connection of its own, that it takes reports. Marks wait for the states before them.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use batchweave_arena::Connection;
use batchweave_wire::{
    ClientMessage, DaemonMessage, ErrorName, MESSAGE_BYTES_MAX, Report, STATES_MAX, StepStates,
    StepValues, WireError,
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

/// Bytes of losses that are kept. Beyond it a step loses its rows and documents, then its sources, then its loss.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// Steps with one state, or one step with its loss.
#[derive(Clone)]
struct Item {
    states: StepStates,
    values: Option<StepValues>,
}

impl Item {
    fn value_bytes(&self) -> usize {
        self.values.as_ref().map_or(0, StepValues::bytes)
    }

    fn bytes(&self) -> usize {
        let reason = self.states.left_out.as_ref().map_or(0, String::len);
        STATE_BYTES + reason + self.value_bytes()
    }
}

/// Bytes of a range in a report, without its reason.
const STATE_BYTES: usize = 24;
/// Bytes of a report that states and losses may have.
const BODY_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 64;

/// States without a confirmation, oldest first.
pub(crate) struct Reports {
    waiting: VecDeque<Item>,
    /// Steps in `waiting`, for their number.
    steps: usize,
    /// The states of each report that this session has sent and the daemon has not confirmed.
    sent: VecDeque<Vec<Item>>,
    confirmed: u64,
    /// Bytes of all losses in `waiting` and `sent`, and the steps that lack some for want of space.
    value_bytes: usize,
    cut: u64,
    support: Support,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            steps: 0,
            sent: VecDeque::new(),
            confirmed: 0,
            value_bytes: 0,
            cut: 0,
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
            Some(Item {
                states,
                values: None,
            }) if states.to == step && states.left_out.as_deref() == left_out => {
                states.to += 1;
            }
            _ => self.waiting.push_back(Item {
                states: StepStates {
                    from: step,
                    to: step + 1,
                    left_out: left_out.map(str::to_owned),
                },
                values: None,
            }),
        }
        self.is_due()
    }

    /// Adds a trained step with its loss; returns whether it is time to send.
    pub(crate) fn add_values(&mut self, mut values: StepValues) -> bool {
        if matches!(self.support, Support::NotTaken) {
            return false;
        }
        self.steps += 1;
        let fits = |values: &StepValues| self.value_bytes + values.bytes() <= VALUES_BYTES_MAX;
        if !fits(&values) {
            self.cut += 1;
            values.details_dropped |= !values.details.is_empty();
            values.details.clear();
        }
        if !fits(&values) {
            values.sources_dropped |= !values.sources.is_empty();
            values.sources.clear();
        }
        let states = StepStates {
            from: values.step,
            to: values.step + 1,
            left_out: None,
        };
        let values = fits(&values).then_some(values);
        let item = Item { states, values };
        self.value_bytes += item.value_bytes();
        self.waiting.push_back(item);
        self.is_due()
    }

    /// Returns the number of steps that were reported without a part of their loss, for lack of space.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    fn is_due(&self) -> bool {
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
        while self.confirmed < count {
            let Some(stored) = self.sent.pop_front() else {
                return;
            };
            self.value_bytes -= stored.iter().map(Item::value_bytes).sum::<usize>();
            self.confirmed += 1;
        }
    }

    /// Sends all states again, in a new session with perhaps another daemon.
    pub(crate) fn send_again(&mut self) {
        let sent: Vec<Item> = self.sent.drain(..).flatten().collect();
        for item in sent.into_iter().rev() {
            self.waiting.push_front(item);
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
                self.value_bytes = 0;
                return Ok(true);
            }
            Support::Unknown(_) | Support::Asked(_) => return Ok(false),
        }
        while !self.waiting.is_empty() {
            let items = self.first_items();
            let message = ClientMessage::Report(Report {
                next_step: session.link.next_step.load(Ordering::Relaxed),
                states: items.iter().map(|item| item.states.clone()).collect(),
                values: items
                    .iter()
                    .filter_map(|item| item.values.clone())
                    .collect(),
            });
            if !session.send(&message)? {
                return Ok(false);
            }
            self.waiting.drain(..items.len());
            self.sent.push_back(items);
        }
        self.steps = 0;
        Ok(true)
    }

    /// Returns the items that fit into one report.
    fn first_items(&self) -> Vec<Item> {
        let mut bytes = 0;
        let mut steps = BTreeSet::new();
        let fits = |item: &&Item| {
            bytes += item.bytes();
            // A message has values of a step once.
            let again = item.values.is_some() && !steps.insert(item.states.from);
            bytes <= BODY_BYTES_MAX && !again
        };
        self.waiting
            .iter()
            .take(STATES_MAX)
            .take_while(fits)
            .cloned()
            .collect()
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
