//! What the service manager is told (sd_notify): READY when the daemon can do its work, STATUS in words,
//! RELOADING and STOPPING, and WATCHDOG as long as nothing is stuck.
//!
//! The protocol is a datagram of `KEY=value` lines to the socket that NOTIFY_SOCKET names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::health::Health;

/// How often what is told is brought up to date.
const PERIOD: Duration = Duration::from_secs(1);
/// Long texts are cut: the manager shows one line.
const STATUS_MAX: usize = 500;

/// The way to the service manager, where there is one.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    to: SocketAddr,
}

impl Notifier {
    /// From NOTIFY_SOCKET; `None` when it is not set. A socket that can't be reached is an error: the
    /// manager would wait for READY in vain.
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
                "NOTIFY_SOCKET names {name}, which can't be reached: {why}; run under the service manager \
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
        // A manager that does not read must not stop us.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, to })
    }

    fn send(&self, text: &str) -> io::Result<()> {
        self.socket
            .send_to_addr(text.as_bytes(), &self.to)
            .map(drop)
    }

    /// Tells it; a failure is logged only, for there is nobody else to tell.
    pub fn tell(&self, text: &str) {
        if let Err(why) = self.send(text) {
            tracing::debug!(%why, text, "the service manager could not be told");
        }
    }
}

/// The time within which WATCHDOG must come, if the manager watches this process.
fn watchdog() -> Option<Duration> {
    let for_us = std::env::var("WATCHDOG_PID")
        .ok()
        .and_then(|pid| pid.parse::<u32>().ok())
        .is_none_or(|pid| pid == std::process::id());
    let limit = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (for_us && limit > 0).then(|| Duration::from_micros(limit))
}

/// Tells the manager how `health` is until `end`.
pub(crate) async fn follow(notifier: Notifier, health: Health, end: CancellationToken) {
    let mut teller = Teller {
        watchdog: watchdog(),
        ..Teller::default()
    };
    let period = teller
        .watchdog
        .map_or(PERIOD, |limit| PERIOD.min(limit / 4));
    let mut tick = tokio::time::interval(period);
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            _ = tick.tick() => {}
        }
        for text in teller.news(&health) {
            notifier.tell(&text);
        }
    }
}

/// What was said already.
#[derive(Debug, Default)]
struct Teller {
    watchdog: Option<Duration>,
    ready: bool,
    status: String,
    stuck: Option<&'static str>,
}

impl Teller {
    fn news(&mut self, health: &Health) -> Vec<String> {
        let mut news = Vec::new();
        let (ready, text) = health.get();
        // A part that has not moved for half the time has half of it left to be saved.
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
        let mut status = stuck.map_or(text, |part| format!("stuck: {part}"));
        status.retain(|c| !c.is_control());
        status.truncate(status.floor_char_boundary(STATUS_MAX));
        if ready && !self.ready {
            self.ready = true;
            news.push(format!("READY=1\nSTATUS={status}"));
            self.status = status;
        } else if status != self.status {
            news.push(format!("STATUS={status}"));
            self.status = status;
        }
        if self.watchdog.is_some() && stuck.is_none() {
            news.push("WATCHDOG=1".into());
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_told_once_and_only_when_it_is_true() {
        let (health, mut teller) = (Health::default(), Teller::default());
        assert_eq!(teller.news(&health), ["STATUS=starting"]);
        health.not_ready("waiting\nfor the stream");
        assert_eq!(teller.news(&health), ["STATUS=waitingfor the stream"]);
        assert!(teller.news(&health).is_empty());
        health.ready("serving");
        assert_eq!(teller.news(&health), ["READY=1\nSTATUS=serving"]);
        health.not_ready("the store fails");
        assert_eq!(teller.news(&health), ["STATUS=the store fails"]);
        health.ready("serving");
        assert_eq!(teller.news(&health), ["STATUS=serving"]);
    }

    #[test]
    fn the_watchdog_is_fed_until_a_part_is_stuck() {
        let health = Health::default();
        let mut teller = Teller {
            watchdog: Some(Duration::from_mins(1)),
            ..Teller::default()
        };
        health.beat("serving");
        assert_eq!(teller.news(&health).last().unwrap(), "WATCHDOG=1");
        teller.watchdog = Some(Duration::from_nanos(2));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(teller.news(&health), ["STATUS=stuck: serving"]);
        assert!(teller.news(&health).is_empty(), "no WATCHDOG");
    }

    #[test]
    fn both_kinds_of_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        Notifier::to(path.to_str().unwrap())
            .unwrap()
            .tell("READY=1");
        let mut text = [0; 16];
        assert_eq!(manager.recv(&mut text).unwrap(), 7);
        let hidden = format!("batchweave-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&hidden).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::to(&format!("@{hidden}"))
            .unwrap()
            .tell("STATUS=x");
        assert_eq!(manager.recv(&mut text).unwrap(), 8);
        let nobody = folder.path().join("nobody");
        let gone = Notifier::to(nobody.to_str().unwrap()).unwrap();
        assert!(gone.send("READY=1").is_err());
    }
}
