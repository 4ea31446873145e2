//! Deletes files of inboxes whose rows are all in committed batches (`inbox.delete`).
//!
//! Invariants:
//! - a file is deleted only by what the log says of the producer's own epoch, since another instance may have another list
//!   behind the part that both share;
//! - the newest file of a writer that is known stays, and of each writer older files go first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Epoch, ProducerName};
use batchweave_core::inbox::Object;
use batchweave_core::inputs::PinnedFile;
use batchweave_log::{Committer, Log, LogOptions};
use batchweave_store::{Store, local_path};
use tokio_util::sync::CancellationToken;

use super::local;
use crate::config::{Delete, ProducerConfig};
use crate::cursor::State;
use crate::error::RunError;
use crate::sources::{InputFile, Inputs, Location, SourceError};

/// Polls of the log are not more frequent.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// Time for the last deletions of a producer that ends.
const LAST: Duration = Duration::from_secs(10);

/// Deletes committed files of a producer's inboxes.
pub(crate) struct FileDeleter {
    store: Arc<dyn Store>,
    producer: (ProducerName, Epoch),
    inputs: Arc<Inputs>,
    /// The sources that are inboxes, with their index; `None` is the one of `[source]`.
    sources: BTreeMap<Option<String>, usize>,
    every: Duration,
    log: Option<Log>,
    /// By the index of each file in the list: it is deleted.
    deleted: Vec<bool>,
}

impl FileDeleter {
    /// Returns the deleter of `producer`; `None` when it deletes nothing.
    pub(crate) fn new(
        config: &ProducerConfig,
        producer: &Committer,
        (store, inputs): (Arc<dyn Store>, Arc<Inputs>),
    ) -> Option<Self> {
        let all = config.all_sources().into_iter().enumerate();
        let inboxes = all.filter(|(_, source)| source.inbox);
        let sources: BTreeMap<_, _> = inboxes
            .map(|(n, source)| (source.pin_name().map(str::to_owned), n))
            .collect();
        let deletes = config.inbox.delete == Delete::Committed && !sources.is_empty();
        deletes.then(|| Self {
            store,
            producer: (producer.name().clone(), producer.epoch()),
            inputs,
            sources,
            every: config.source.follow_every.0.max(EVERY_MIN),
            log: None,
            deleted: Vec::new(),
        })
    }

    /// Deletes again and again until `stop` is cancelled, and a last time then.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while stop
            .run_until_cancelled(tokio::time::sleep(self.every))
            .await
            .is_some()
        {
            // A file that is half deleted does not exist, so a stop may end a pass anywhere.
            let Some(done) = stop.run_until_cancelled(self.pass()).await else {
                break;
            };
            report(done);
        }
        if let Ok(done) = tokio::time::timeout(LAST, self.pass()).await {
            report(done);
        } else {
            tracing::warn!(
                "not all committed files of inboxes were deleted; a restart deletes them"
            );
        }
    }

    /// Deletes what can be deleted now; returns the number of files.
    async fn pass(&mut self) -> Result<usize, RunError> {
        let Some(state) = self.committed().await? else {
            return Ok(0);
        };
        let list = self.inputs.now();
        self.deleted.resize(list.files.len(), false);
        let pins = list.files.iter().map(|file| &file.pin);
        let over = |n: usize, pin: &PinnedFile| match self.sources.get(&pin.source) {
            Some(source) => self.deleted.get(n) == Some(&false) && is_over(&state, n, pin, *source),
            None => false,
        };
        let gone = deletable(pins, over);
        for n in &gone {
            delete(&list.files[*n]).await?;
            self.deleted[*n] = true;
        }
        Ok(gone.len())
    }

    /// Returns the committed state, as far as this instance or one before it made it.
    async fn committed(&mut self) -> Result<Option<State>, RunError> {
        let log = match &mut self.log {
            Some(log) => {
                log.catch_up().await?;
                log
            }
            none => {
                let options = LogOptions {
                    write_snapshots: false,
                    ..LogOptions::new(rand::random())
                };
                none.insert(Log::open(self.store.clone(), &options).await?)
            }
        };
        let (name, epoch) = &self.producer;
        let own = log
            .manifest()
            .producer(name)
            .filter(|own| own.epoch == *epoch);
        match own {
            Some(own) => Ok(State::from_cursor(&own.cursor, name.as_str())?),
            None => Ok(None),
        }
    }
}

/// Returns whether all rows of file `n` are in batches before `state`.
fn is_over(state: &State, n: usize, pin: &PinnedFile, source: usize) -> bool {
    match &state.order {
        // The end of the only pass is the beginning of the next one.
        None => state.at.pass > 0 || n < state.at.file as usize,
        Some(order) => {
            let at = order.at.get(source);
            let file_order = state.is_in_file_order(source);
            at.is_some_and(|at| {
                if file_order {
                    at.position.pass > 0 || (n as u64) < at.position.group
                } else {
                    pin.growth < at.position.pass
                }
            })
        }
    }
}

/// Returns the indices of the files that are `over` and may be deleted, in the order in which they go.
fn deletable<'p>(
    pins: impl Iterator<Item = &'p PinnedFile> + Clone,
    over: impl Fn(usize, &PinnedFile) -> bool,
) -> Vec<usize> {
    let numbered = pins.enumerate().filter_map(|(n, pin)| {
        let (folder, name) = pin.name.rsplit_once('/')?;
        match Object::named(name) {
            Object::File(number) => Some((n, pin, folder, number)),
            _ => None,
        }
    });
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, _, folder, number) in numbered.clone() {
        let newest = newest.entry(folder).or_default();
        *newest = number.max(*newest);
    }
    let gone =
        numbered.filter(|(n, pin, folder, number)| newest[folder] != *number && over(*n, pin));
    let gone: BTreeSet<_> = gone
        .map(|(n, _, folder, number)| (folder, number, n))
        .collect();
    gone.into_iter().map(|(_, _, n)| n).collect()
}

async fn delete(file: &InputFile) -> Result<(), RunError> {
    match &file.location {
        Location::Remote { store, key } => store.delete(key).await.map_err(SourceError::Store)?,
        // An object that was gone when the list was read again has no store.
        Location::Local(_) if local_path(&file.pin.name).is_none() => {}
        Location::Local(path) => {
            let path = path.clone();
            let deleted = tokio::task::spawn_blocking(move || local::delete(&path)).await;
            match deleted.map_err(std::io::Error::other).flatten() {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    let file = file.pin.name.clone();
                    return Err(SourceError::Unreadable { file, why }.into());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn report(done: Result<usize, RunError>) {
    match done {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "deleted files of inboxes whose rows are committed"),
        Err(error) => tracing::warn!(%error, "cannot delete committed files of inboxes; retrying"),
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::inbox::file_name;

    use super::*;

    #[test]
    fn the_newest_file_of_each_writer_stays() {
        let names = ["b", "a", "a", "b", "a"].iter().zip([0, 0, 1, 1, 2]);
        let names = names.map(|(writer, number)| format!("inbox/{writer}/{}", file_name(number)));
        let job = ["inbox/job/part-0-a.parquet".to_owned()];
        let pins: Vec<PinnedFile> = names
            .chain(job)
            .map(|name| PinnedFile::new(name, 1, b"", b""))
            .collect();
        assert_eq!(deletable(pins.iter(), |_, _| true), [1, 2, 0]);
        assert_eq!(deletable(pins.iter(), |n, _| n < 2), [1, 0]);
        assert_eq!(deletable(pins.iter(), |n, _| n > 2), Vec::<usize>::new());
    }
}
