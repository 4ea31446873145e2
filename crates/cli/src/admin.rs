//! Shared by the verbs that commit a record: the request id, the commit, and the advice that follows a
//! refusal.

use batchweave_console::CliError;
use batchweave_console::job::{incarnation, not_open, parameters};
use batchweave_console::output::{count, joined};
use batchweave_core::ids::{RequestId, Version};
use batchweave_core::manifest::{Entry, Manifest, Void};
use batchweave_log::{Log, LogError};
use batchweave_store::{ErrorKind, Op, local_path};

/// Returns the request id of the command line, or a new one.
pub(crate) fn request(given: Option<RequestId>, log: &mut Log) -> RequestId {
    given.unwrap_or_else(|| log.new_request())
}

/// Commits the entry that `make` builds; `make` runs again after each lost race. Returns `None` when there
/// is nothing to do: the request was applied before, or `make` returned `None`.
pub(crate) async fn commit(
    log: &mut Log,
    verb: &str,
    make: impl FnMut(&Manifest) -> Result<Option<Entry>, CliError>,
) -> Result<Option<Version>, CliError> {
    let writer = format!("batchweave-{verb}");
    let done = log.commit_if(&writer, make).await;
    let in_bucket = local_path(log.store().root()).is_none();
    done.map_err(|error| match error {
        CliError::Log(LogError::Void(void)) => refused(&void, log.manifest()),
        CliError::Log(LogError::Store(mut e))
            if in_bucket && (e.kind, e.op) == (ErrorKind::Denied, Op::Create) =>
        {
            e.detail
                .push_str(" (this verb commits a record: it needs s3:PutObject on log/*)");
            CliError::Store(e)
        }
        other => other,
    })
}

/// Returns the error for a refused entry, with advice that depends on the state that refused it.
pub(crate) fn refused(void: &Void, m: &Manifest) -> CliError {
    CliError::Refused(match advice(void, m) {
        None => void.to_string(),
        Some(advice) => format!("{void}: {advice}"),
    })
}

fn advice(void: &Void, m: &Manifest) -> Option<String> {
    Some(match void {
        Void::NotOpened(_) | Void::NotNamed(_) => producers(m),
        Void::Finished(_) => "it has no term to retire".into(),
        Void::Retired { .. } => "the next instance that opens it gets a new term".into(),
        Void::WrongEpoch { current, .. } => format!(
            "it was opened again, as term {current}, while this command ran; \
             check `batchweave status` before another try"
        ),
        Void::JobOpen(job) => {
            let state = m.jobs().get(job)?;
            format!(
                "it is {}, {}; choose another name, or close that one first \
                 (`batchweave job show {job}` shows it)",
                incarnation(job, state.opened),
                parameters(state)
            )
        }
        Void::JobNotOpen { job, .. } => not_open(m, job),
        Void::BelowWatermark { watermark, .. } => {
            format!("older steps may be gone; the oldest that can be read is {watermark}")
        }
        Void::KeepNothing => "a job that keeps no restart point could never restart".into(),
        Void::TextTooLong { .. } => "shorten --reason".into(),
        Void::NoQuarantine => "`batchweave quarantine` lists those in force".into(),
        Void::WatermarkOrder { .. } => "another command moved it: there is nothing to do".into(),
        Void::WatermarkAboveHead { head, .. } => {
            format!("the stream has {}", count(*head, "step"))
        }
        Void::WatermarkJobs => {
            "a job or an attempt was opened or closed in the meantime: run the command again".into()
        }
        Void::WatermarkUnasked => "move it by hand with `batchweave reclaim --to STEP`".into(),
        _ => return None,
    })
}

fn producers(m: &Manifest) -> String {
    match joined(m.producers().map(|(name, _)| name), "").as_str() {
        "" => "no producer was opened yet".into(),
        names => format!("opened producers: {names}"),
    }
}

/// Formats the version of a change, or that there was nothing to change.
pub(crate) fn by_version(version: Option<Version>) -> String {
    version.map_or("as before".to_owned(), |v| format!("by version {v}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batchweave_console::context;
    use batchweave_core::fixtures;
    use batchweave_core::ids::JobName;
    use batchweave_core::manifest::entry::Sealed;
    use batchweave_core::stream::StreamOrder;
    use batchweave_daemon::Exit;
    use batchweave_log::AsOf;
    use batchweave_store::Store;
    use batchweave_store::memory::MemoryStore;

    use super::*;

    /// An empty stream behind credentials that may only read.
    async fn read_only() -> Log {
        let store: Arc<dyn Store> = MemoryStore::new();
        let config = fixtures::stream([7; 16], StreamOrder::Arrival, Vec::new());
        let _ = batchweave_log::create(&store, &config).await.unwrap();
        context::open_log(AsOf::new(store, u64::MAX)).await.unwrap()
    }

    #[tokio::test]
    async fn a_missing_permission_is_one_message_that_names_it() {
        let mut log = read_only().await;
        let request = log.new_request();
        let seal = |_: &Manifest| {
            let reason = "enough".to_owned();
            Ok(Some(Entry::Sealed(Sealed { request, reason })))
        };
        let error = commit(&mut log, "seal", seal).await.unwrap_err();
        assert_eq!(error.exit(), Exit::StoreUnavailable);
        let text = error.to_string();
        assert!(text.contains("s3:PutObject on log/*"), "{text}");
        assert!(text.contains("log/00000000000000000000.json"), "{text}");
    }

    #[tokio::test]
    async fn every_refusal_says_what_and_what_to_do() {
        let log = read_only().await;
        let job: JobName = "llm".parse().unwrap();
        let producer = || "p0".parse().unwrap();
        let cases = [
            (Void::NotOpened(producer()), "no producer was opened yet"),
            (Void::Finished(producer()), "no term to retire"),
            (
                Void::WrongEpoch {
                    producer: producer(),
                    current: 3,
                    found: 2,
                },
                "as term 3",
            ),
            (
                Void::JobNotOpen {
                    job: job.clone(),
                    opened: 4,
                },
                "no job is open",
            ),
            (
                Void::BelowWatermark {
                    step: 1,
                    watermark: 9,
                },
                "that can be read is 9",
            ),
            (Void::KeepNothing, "could never restart"),
            (Void::TextTooLong { limit: 4096 }, "shorten --reason"),
            (Void::NoQuarantine, "lists those in force"),
            (
                Void::WatermarkOrder {
                    current: 5,
                    found: 4,
                },
                "another command moved it",
            ),
            (Void::WatermarkJobs, "run the command again"),
            (Void::WatermarkUnasked, "move it by hand"),
        ];
        for (void, advice) in cases {
            let text = refused(&void, log.manifest()).to_string();
            assert!(text.starts_with(&void.to_string()), "{text}");
            assert!(text.contains(advice), "{text}");
        }
    }
}
