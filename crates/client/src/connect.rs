//! Connecting, with retries until the deadline.

use std::time::{Duration, Instant};

use batchweave_wire::{Hello, WaitCause, Welcome};

use crate::session::{Event, Failure, Session};
use crate::{ClientError, ConnectOptions, Reader};

/// First and longest pause between tries; short, so that a daemon's restart costs little.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Least time for a connected daemon's welcome, however short the caller's time-out.
const HANDSHAKE_MIN: Duration = Duration::from_millis(200);

/// Entry point: connects readers to a daemon.
#[derive(Debug)]
pub struct Client;

impl Client {
    /// Connects and waits for the daemon's welcome, at most for the options' time-out.
    pub fn connect(options: ConnectOptions) -> Result<Reader, ClientError> {
        let hello = options.hello()?;
        let deadline = Deadline::after(options.timeout);
        let (session, welcome, _) = open(&options, &hello, &deadline)?;
        Reader::new(options, hello, session, welcome)
    }
}

/// A time-out with its start.
pub(crate) struct Deadline {
    begun: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        // At most a year, so that no sum of instants overflows.
        Self {
            begun: Instant::now(),
            timeout: timeout.min(Duration::from_hours(24 * 365)),
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.elapsed())
    }
}

/// The last cause of waiting, with the daemon's details.
pub(crate) type Cause = Option<(WaitCause, String)>;

/// Opens a session and waits for its welcome.
pub(crate) fn open(
    options: &ConnectOptions,
    hello: &Hello,
    deadline: &Deadline,
) -> Result<(Session, Welcome, Cause), ClientError> {
    let mut pause = PAUSE_MIN;
    let mut cause = None;
    loop {
        let source = match try_open(options, hello, deadline, &mut cause) {
            Ok((session, welcome)) => return Ok((session, welcome, cause)),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Absent(source)) => source,
        };
        if deadline.left().is_zero() {
            let waited = deadline.timeout;
            return Err(match source {
                Some(source) => ClientError::NoDaemon { waited, source },
                None => gone(options, hello.next_step, waited),
            });
        }
        std::thread::sleep(pause.min(deadline.left()));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

pub(crate) fn gone(options: &ConnectOptions, step: u64, waited: Duration) -> ClientError {
    ClientError::DaemonGone {
        socket: options.socket.display().to_string(),
        step,
        waited,
    }
}

fn try_open(
    options: &ConnectOptions,
    hello: &Hello,
    deadline: &Deadline,
    cause: &mut Cause,
) -> Result<(Session, Welcome), Failure> {
    let mut session = Session::open(&options.socket, hello, deadline.begun + deadline.timeout)?;
    loop {
        match session.event(deadline.left().max(HANDSHAKE_MIN))? {
            Event::Welcome(welcome) => return Ok((session, welcome)),
            Event::Waiting(w) => *cause = Some((w.cause, w.detail)),
            Event::Fault(fault) => return Err(ClientError::Daemon(fault).into()),
            Event::Gone => return Err(Failure::Absent(None)),
            Event::Nothing => return Err(late(hello, deadline, cause).into()),
            Event::Batch(_)
            | Event::End(_)
            | Event::Marked(_)
            | Event::MarkRefused(_)
            | Event::Reported(_) => {
                return Err(session.bad("a message before the welcome").into());
            }
        }
        // A daemon that only sends causes must not delay the caller beyond the deadline.
        if deadline.left().is_zero() {
            return Err(late(hello, deadline, cause).into());
        }
    }
}

fn late(hello: &Hello, deadline: &Deadline, cause: &mut Cause) -> ClientError {
    let (cause, detail) = cause.take().unzip();
    let (step, waited) = (hello.next_step, deadline.timeout);
    ClientError::Timeout {
        step,
        waited,
        cause,
        detail: detail.unwrap_or_default(),
    }
}
