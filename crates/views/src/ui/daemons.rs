//! The named daemons as the page shows them.

use serde::{Deserialize, Serialize};

use crate::daemons;
use crate::status::Fact;

const PRODUCER: &str = "batchweave-producer";

/// A daemon whose address the command line names.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DaemonView {
    /// As it was named.
    pub(super) address: String,
    /// Why nothing is known of it, or why it is not of this stream.
    pub(super) fault: Option<String>,
    pub(super) status: Option<DaemonStatus>,
}

/// The part of a daemon's `/status.json` that the page shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DaemonStatus {
    program: String,
    version: String,
    pub(super) stream: String,
    host: String,
    /// Name of the producer.
    pub(super) name: String,
    /// The jobs that it serves.
    #[serde(default)]
    job: String,
    /// `ready`, `held` or `not ready`.
    pub(super) state: String,
    pub(super) doing: String,
    up_seconds: u64,
    #[serde(default)]
    pub(super) facts: Vec<Fact>,
    #[serde(default)]
    ranks: Option<Vec<RankStatus>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RankStatus {
    rank: String,
    step: u64,
    behind: u64,
    ahead: u64,
    held: u64,
    waiting: f64,
    why: String,
}

/// Reads the status of all, in their order.
pub(super) async fn read_all(addresses: &[String]) -> Vec<DaemonView> {
    let all = daemons::read_all(addresses).await;
    let views = addresses.iter().zip(all).map(|(address, status)| {
        let address = address.clone();
        let (status, fault) = match status {
            Ok(status) => (Some(status), None),
            Err(why) => (None, Some(why)),
        };
        DaemonView {
            address,
            fault,
            status,
        }
    });
    views.collect()
}

impl DaemonView {
    /// Notes as a fault that the daemon works on another stream than that at `root`.
    pub(super) fn check_stream(mut self, root: &str) -> Self {
        let bare = |url: &str| url.trim_end_matches('/').to_owned();
        if let Some(status) = &self.status
            && bare(&status.stream) != bare(root)
        {
            self.fault = Some(format!("works on another stream: {}", status.stream));
        }
        self
    }

    /// Returns the status of a daemon of this stream.
    pub(super) fn status(&self) -> Option<&DaemonStatus> {
        self.status.as_ref().filter(|_| self.fault.is_none())
    }
}

impl DaemonStatus {
    /// Returns the name of the producer, if the daemon is one.
    pub(super) fn producer(&self) -> Option<&str> {
        (self.program == PRODUCER).then_some(self.name.as_str())
    }

    /// Returns the reason, in short, for which a producer is held back.
    pub(super) fn held(&self) -> Option<&str> {
        let held = self.state == "held" && self.producer().is_some();
        held.then(|| self.doing.split(';').next().unwrap_or_default())
    }

    /// Returns the name of the daemon for a sentence.
    pub(super) fn title(&self) -> String {
        let role = self.program.trim_start_matches("batchweave-");
        match self.name.as_str() {
            "" => format!("the {role} on {}", self.host),
            name => format!("{role} {name}"),
        }
    }
}
