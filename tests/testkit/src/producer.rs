//! A producer that commits one record per call and repeats each lost race itself.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, StreamId};
use batchweave_core::keys;
use batchweave_core::manifest::entry::{BatchEntry, Finished, Opened};
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Manifest, Writer};
use batchweave_core::tgb::{Identity, TgbData, TgbRecord, pack};
use batchweave_log::{Append, Log, LogError};

/// An open producer of a test.
#[derive(Debug)]
pub struct TestProducer {
    log: Log,
    name: ProducerName,
    epoch: Epoch,
    nonce: Nonce,
}

impl TestProducer {
    /// Opens `name` in a new epoch, which fences every older instance.
    ///
    /// # Panics
    /// When the log cannot be read or written, the producer has finished or the stream is sealed.
    pub async fn open(mut log: Log, name: &str, instance: &str) -> Self {
        let name: ProducerName = name.parse().unwrap();
        let nonce = Nonce(log.random().to_be_bytes());
        let writer = Writer {
            name: name.to_string(),
            epoch: 0,
        };
        let opened = commit(&mut log, &writer, |m| {
            Entry::Opened(Opened {
                producer: name.clone(),
                instance: instance.to_owned(),
                nonce,
                epoch: m.producer(&name).map_or(0, |p| p.epoch) + 1,
                began: m.next_version(),
            })
        });
        opened.await.unwrap();
        let epoch = log.manifest().producer(&name).unwrap().epoch;
        Self {
            log,
            name,
            epoch,
            nonce,
        }
    }

    /// The name of the producer.
    pub fn name(&self) -> &ProducerName {
        &self.name
    }

    /// The epoch of this opening.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The nonce of this opening, a part of its data keys.
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The id of the stream.
    pub fn stream_id(&self) -> StreamId {
        self.log.manifest().stream_id()
    }

    /// The log as of the last commit.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The log, to wait for the snapshots that it writes.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// The sequence number of the next TGB.
    pub fn next_seq(&self) -> Seq {
        let state = self.log.manifest().producer(&self.name);
        state.map_or(0, |p| p.next_seq)
    }

    /// The key of part `part` of the object that holds the TGBs `seqs` (first, last).
    pub fn data_key(&self, seqs: (Seq, Seq), part: u32) -> String {
        keys::data(&self.name, self.epoch, self.nonce, seqs, seqs.0, part)
    }

    /// Commits `tgbs`, whose objects are stored already, with the cursor that follows them.
    pub async fn try_commit(
        &mut self,
        tgbs: Vec<TgbRecord>,
        cursor: Cursor,
    ) -> Result<(), LogError> {
        let (producer, epoch, writer) = (&self.name, self.epoch, self.writer());
        commit(&mut self.log, &writer, |m| {
            let state = m.producer(producer);
            let first_seq = state.map_or(0, |p| p.next_seq);
            let cursor_before = state.map(|p| p.cursor.hash());
            Entry::Batch(BatchEntry {
                producer: producer.clone(),
                epoch,
                first_seq,
                last_seq: (first_seq + tgbs.len() as u64).saturating_sub(1),
                cursor_before: cursor_before.unwrap_or_else(|| Cursor::default().hash()),
                cursor: cursor.clone(),
                mixture: m.mixture_at(producer, first_seq),
                stage: m.stage_at(producer, first_seq),
                first_step: None,
                tgbs: tgbs.clone(),
            })
        })
        .await
    }

    /// Packs `tgbs`, which start at `next_seq`, into objects of about `object_bytes`, stores these and
    /// commits them in one record.
    ///
    /// # Panics
    /// When packing, an upload or the commit fails.
    pub async fn commit_data(&mut self, tgbs: &[TgbData], object_bytes: u64) {
        let row = self.next_seq() + tgbs.len() as u64;
        let cursor = Cursor(serde_json::json!({ "row": row }));
        self.commit_with(tgbs, object_bytes, cursor).await;
    }

    /// The same, with a cursor of the test.
    ///
    /// # Panics
    /// When packing, an upload or the commit fails.
    pub async fn commit_with(&mut self, tgbs: &[TgbData], object_bytes: u64, cursor: Cursor) {
        let (first, store) = (self.next_seq(), self.log.store().clone());
        let last = first + tgbs.len() as u64 - 1;
        let identity = Identity::new(self.stream_id(), &self.name, self.epoch);
        let key = |part| self.data_key((first, last), part);
        let packed = pack(identity, tgbs, object_bytes, key).unwrap();
        for object in packed.objects {
            let _ = store.upload(&object.key, object.bytes).await.unwrap();
        }
        self.try_commit(packed.tgbs, cursor).await.unwrap();
    }

    /// Commits the end of this producer's input.
    ///
    /// # Panics
    /// When the commit fails.
    pub async fn finish(&mut self) {
        let (producer, epoch, writer) = (&self.name, self.epoch, self.writer());
        let finished = commit(&mut self.log, &writer, |m| {
            Entry::Finished(Finished {
                producer: producer.clone(),
                epoch,
                final_seq: m.producer(producer).map_or(0, |p| p.next_seq),
            })
        });
        finished.await.unwrap();
    }

    fn writer(&self) -> Writer {
        Writer {
            name: self.name.to_string(),
            epoch: self.epoch,
        }
    }
}

/// Commits the entry of `make` as a daemon's committer does, under the producer's own name.
async fn commit(
    log: &mut Log,
    writer: &Writer,
    mut make: impl FnMut(&Manifest) -> Entry,
) -> Result<(), LogError> {
    loop {
        log.catch_up().await?;
        let entry = make(log.manifest());
        let validity = log.manifest().validate(&entry).map_err(LogError::Void)?;
        if validity == Validity::Repeat {
            return Ok(());
        }
        if let Append::Won { .. } = log.append(writer, vec![entry]).await? {
            return Ok(());
        }
    }
}
