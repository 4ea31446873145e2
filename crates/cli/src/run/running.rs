//! Whether the producer that a run would start is at work already: a second one of its name fences the first, and
//! both runs would end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use batchweave_core::ids::ProducerName;
use batchweave_core::manifest::state::ProducerState;
use batchweave_log::Log;
use tokio::time::{Instant, sleep};

use super::claim::{self, Claim, Claimed};
use super::error::RunError;
use super::training::Training;

/// Longest wait for a producer that is about to end, because its run has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Time without a commit after which a producer of another machine counts as gone.
const SILENT_FOR: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(250);

/// Locks the producer of the stream at `url` for this user; `None` where no folder takes the lock.
pub(super) fn lock(
    folder: Option<&Path>,
    url: &str,
    producer: &str,
) -> Result<Option<Claim>, RunError> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    match claim::claim(folder, &claim::producer_lock(url, producer)) {
        Ok(Claimed::Ours { claim, .. }) => Ok(Some(claim)),
        Ok(Claimed::Others(holder)) => {
            let by = holder.map_or_else(
                || "another `batchweave run`".to_owned(),
                |pid| format!("`batchweave run`, process {pid}"),
            );
            Err(refusal((url, producer), by))
        }
        // A file system without locks: the log still says who works.
        Err(_) => Ok(None),
    }
}

/// Reads in the log who opened the producer last, and refuses while that process works. Returns words for a
/// producer of another machine that is taken over.
pub(super) async fn look(
    training: &mut Training,
    url: &str,
    producer: &str,
) -> Result<Option<String>, RunError> {
    let Ok(name) = producer.parse::<ProducerName>() else {
        return Ok(None);
    };
    // The daemons report a store that does not answer, and create a stream.
    let Some(state) = opened(training.open().await, &name) else {
        return Ok(None);
    };
    let (host, pid) = state
        .instance
        .rsplit_once(':')
        .unwrap_or((state.instance.as_str(), ""));
    let this = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if host == this.trim() {
        let place = PathBuf::from("/proc").join(pid);
        if ended(&place).await {
            return Ok(None);
        }
        return Err(refusal((url, producer), format!("process {pid}")));
    }
    match committed_meanwhile(training, &name, &state).await {
        Meanwhile::Over => return Ok(None),
        Meanwhile::Committed { by } => {
            let by = format!("{by}, which has just committed");
            return Err(refusal((url, producer), by));
        }
        Meanwhile::Nothing => {}
    }
    let seconds = SILENT_FOR.as_secs();
    Ok(Some(format!(
        "producer {producer} was opened by {}, and has committed nothing for {seconds} s: taking it over",
        state.instance
    )))
}

/// The news of a producer during the time after which it counts as gone.
enum Meanwhile {
    Nothing,
    /// The producer is no longer open, or the log cannot be read.
    Over,
    Committed {
        by: String,
    },
}

async fn committed_meanwhile(
    training: &mut Training,
    name: &ProducerName,
    state: &ProducerState,
) -> Meanwhile {
    let until = Instant::now() + SILENT_FOR;
    while Instant::now() < until {
        sleep(POLL).await;
        let Some(now) = opened(training.open().await, name) else {
            return Meanwhile::Over;
        };
        if (now.epoch, now.next_seq) != (state.epoch, state.next_seq) {
            return Meanwhile::Committed { by: now.instance };
        }
    }
    Meanwhile::Nothing
}

fn opened(log: Option<&mut Log>, name: &ProducerName) -> Option<ProducerState> {
    let manifest = log?.manifest();
    let over = manifest.sealed() || manifest.end().is_some();
    let state = manifest
        .producer(name)
        .filter(|state| !state.finished && !state.retired);
    state.filter(|_| !over).cloned()
}

/// Returns whether the producer at `place` in /proc has ended; waits for one whose run has ended.
async fn ended(place: &Path) -> bool {
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        let Some(words) = producers_words(place) else {
            return true;
        };
        let parent = words.iter().skip_while(|word| *word != "--end-with").nth(1);
        let orphan = parent.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if !orphan || Instant::now() > until {
            return false;
        }
        sleep(POLL).await;
    }
}

/// Returns the command line of a process, if it is a producer's: its number may have been given to another program.
fn producers_words(place: &Path) -> Option<Vec<String>> {
    let line = std::fs::read(place.join("cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0);
    let words: Vec<String> = words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let is_producer = |word: &String| word.ends_with("batchweave-producer");
    words.iter().take(2).any(is_producer).then_some(words)
}

fn refusal((url, producer): (&str, &str), by: String) -> RunError {
    RunError::Producing {
        url: url.to_owned(),
        producer: producer.to_owned(),
        by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(words: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cmdline"), words.join("\0")).unwrap();
        folder
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_producer_that_goes_on_is_at_work() {
        let own = std::process::id().to_string();
        let works = process(&[
            "/x/batchweave-producer",
            "--config",
            "f",
            "--end-with",
            &own,
        ]);
        assert!(!ended(works.path()).await);
        let alone = process(&["/x/batchweave-all", "batchweave-producer", "--config", "f"]);
        assert!(!ended(alone.path()).await);
        let other = process(&["vim", "batchweave-producer.toml"]);
        assert!(ended(other.path()).await);
        assert!(ended(Path::new("/proc/absent")).await);
        // Its run has gone, so it ends too: but one that hangs is at work.
        let orphan = process(&["batchweave-producer", "--end-with", "999999999"]);
        let gone = orphan.path().join("cmdline");
        let (ended, ()) = tokio::join!(ended(orphan.path()), async {
            sleep(Duration::from_secs(1)).await;
            std::fs::remove_file(&gone).unwrap();
        });
        assert!(ended);
        let hangs = process(&["batchweave-producer", "--end-with", "999999999"]);
        assert!(!super::ended(hangs.path()).await);
    }
}
