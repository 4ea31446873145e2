//! Notifications to the service manager (sd_notify): READY when the daemon can do its work, STATUS in
//! words, RELOADING and STOPPING, and WATCHDOG while no part is stuck.
//!
//! The protocol is a datagram of `KEY=value` lines to the socket that NOTIFY_SOCKET names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::health::Health;

/// Interval between status updates.
const PERIOD: Duration = Duration::from_secs(1);
/// Most bytes of a status; the manager shows one line.
const STATUS_MAX: usize = 500;

/// The socket of the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    to: SocketAddr,
}

impl Notifier {
    /// Connects to NOTIFY_SOCKET; `None` when it is not set. An unreachable socket is an error, because
    /// the manager would wait for READY in vain.
    pub fn from_env() -> io::Result<Option<Self>> {
        let Some(name) = std::env::var("NOTIFY_SOCKET")
            .ok()
            .filter(|n| !n.is_empty())
        else {
            return Ok(None);
        };
        let made = Self::to(&name).and_then(|notifier| {
            notifier.send("STATUS=starting")?;
            Ok(notifier)
        });
        made.map(Some).map_err(|why| {
            let text = format!(
                "cannot reach the service manager at {name} (NOTIFY_SOCKET): {why}; run under the service manager \
with Type=notify, or unset it"
            );
            io::Error::new(why.kind(), text)
        })
    }

    fn to(name: &str) -> io::Result<Self> {
        let to = match name.strip_prefix('@') {
            Some(hidden) => SocketAddr::from_abstract_name(hidden)?,
            None => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not block the daemon.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, to })
    }

    fn send(&self, text: &str) -> io::Result<()> {
        self.socket
            .send_to_addr(text.as_bytes(), &self.to)
            .map(drop)
    }

    /// Sends `text`; a failure is only logged.
    pub fn notify(&self, text: &str) {
        if let Err(why) = self.send(text) {
            tracing::debug!(%why, text, "cannot notify the service manager");
        }
    }
}

/// Reports why this daemon ends: `systemctl status` then shows it to users who may not read the journal, too.
pub(crate) fn ended(why: &str) {
    // A manager that cannot be reached is the failure itself, or there is none.
    if let Ok(Some(notifier)) = Notifier::from_env() {
        let lines: Vec<_> = why.lines().map(str::trim).collect();
        notifier.notify(&format!("STATUS={}", shortened(lines.join(" "))));
    }
}

/// Makes a status the one line that the manager shows.
fn shortened(mut status: String) -> String {
    status.retain(|c| !c.is_control());
    status.truncate(status.floor_char_boundary(STATUS_MAX));
    status
}

/// Returns the manager's watchdog period, if it watches this process.
fn watchdog() -> Option<Duration> {
    let for_us = std::env::var("WATCHDOG_PID")
        .ok()
        .and_then(|pid| pid.parse::<u32>().ok())
        .is_none_or(|pid| pid == std::process::id());
    let limit = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (for_us && limit > 0).then(|| Duration::from_micros(limit))
}

/// Reports changes of `health` to the manager until `end`.
pub(crate) async fn follow(notifier: Notifier, health: Health, end: CancellationToken) {
    let mut reporter = Reporter {
        watchdog: watchdog(),
        ..Reporter::default()
    };
    let period = reporter
        .watchdog
        .map_or(PERIOD, |limit| PERIOD.min(limit / 4));
    let mut tick = tokio::time::interval(period);
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            _ = tick.tick() => {}
        }
        for text in reporter.changes(&health) {
            notifier.notify(&text);
        }
    }
}

/// The last reported state.
#[derive(Debug, Default)]
struct Reporter {
    watchdog: Option<Duration>,
    ready: bool,
    status: String,
    stuck: Option<&'static str>,
}

impl Reporter {
    fn changes(&mut self, health: &Health) -> Vec<String> {
        let mut changes = Vec::new();
        let (ready, text) = health.get();
        // Reported after half the watchdog's period, so that a part can still recover.
        let stuck = self.watchdog.and_then(|limit| health.stuck(limit / 2));
        if stuck != self.stuck {
            if let Some(part) = stuck {
                tracing::error!(
                    part,
                    "stuck; the service manager's watchdog is no longer fed"
                );
            }
            self.stuck = stuck;
        }
        let status = shortened(stuck.map_or(text, |part| format!("stuck: {part}")));
        if ready && !self.ready {
            self.ready = true;
            changes.push(format!("READY=1\nSTATUS={status}"));
            self.status = status;
        } else if status != self.status {
            changes.push(format!("STATUS={status}"));
            self.status = status;
        }
        if self.watchdog.is_some() && stuck.is_none() {
            changes.push("WATCHDOG=1".into());
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_reported_once_and_only_when_true() {
        let (health, mut reporter) = (Health::default(), Reporter::default());
        assert_eq!(reporter.changes(&health), ["STATUS=starting"]);
        health.not_ready("waiting\nfor the stream");
        assert_eq!(reporter.changes(&health), ["STATUS=waitingfor the stream"]);
        assert!(reporter.changes(&health).is_empty());
        health.ready("serving");
        assert_eq!(reporter.changes(&health), ["READY=1\nSTATUS=serving"]);
        health.not_ready("the store fails");
        assert_eq!(reporter.changes(&health), ["STATUS=the store fails"]);
        health.ready("serving");
        assert_eq!(reporter.changes(&health), ["STATUS=serving"]);
    }

    #[test]
    fn the_watchdog_is_fed_until_a_part_is_stuck() {
        let health = Health::default();
        let mut reporter = Reporter {
            watchdog: Some(Duration::from_mins(1)),
            ..Reporter::default()
        };
        health.beat("serving");
        assert_eq!(reporter.changes(&health).last().unwrap(), "WATCHDOG=1");
        reporter.watchdog = Some(Duration::from_nanos(2));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(reporter.changes(&health), ["STATUS=stuck: serving"]);
        assert!(reporter.changes(&health).is_empty(), "no WATCHDOG");
    }

    #[test]
    fn both_kinds_of_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        Notifier::to(path.to_str().unwrap())
            .unwrap()
            .notify("READY=1");
        let mut text = [0; 16];
        assert_eq!(manager.recv(&mut text).unwrap(), 7);
        let hidden = format!("batchweave-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&hidden).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::to(&format!("@{hidden}"))
            .unwrap()
            .notify("STATUS=x");
        assert_eq!(manager.recv(&mut text).unwrap(), 8);
        let nobody = folder.path().join("nobody");
        let gone = Notifier::to(nobody.to_str().unwrap()).unwrap();
        assert!(gone.send("READY=1").is_err());
    }
}
