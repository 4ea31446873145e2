//! The measured run: a producer whose objects hold several TGBs, and a job with checkpoints.

use std::sync::Arc;

use batchweave_core::ids::{AttemptId, JobName, RequestId, Step, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, JobOpened};
use batchweave_core::retention::{Mark, Progress};
use batchweave_core::stream::StreamConfig;
use batchweave_core::tgb::{Digest, ObjectPart, TgbRecord};
use batchweave_log::{Log, LogOptions};
use batchweave_store::Store;
use bytes::Bytes;

use crate::bench::stream::{SingleCommits, config};
use crate::error::bench_error;
use batchweave_console::CliError;

const SLICES: u32 = 4;
/// TGBs per object and per commit.
pub(super) const OBJECT_TGBS: u64 = 4;
/// The run's only attempt.
const ATTEMPT: AttemptId = AttemptId([1; 16]);
/// Bytes of a step's data.
pub(super) const STEP_BYTES: u64 = 4096;

pub(super) struct SimulatedRun {
    store: Arc<dyn Store>,
    producer: SingleCommits,
    job: JobName,
    opened: Version,
    uploaded: u64,
}

fn stream() -> StreamConfig {
    config(SLICES, 1, 8)
}

impl SimulatedRun {
    pub(super) async fn new(store: &Arc<dyn Store>, keep: u32) -> Result<Self, CliError> {
        let _ = batchweave_log::create(store, &stream()).await?;
        let producer = SingleCommits::open(store, stream(), "tokenizer-00", 1).await?;
        let job: JobName = "run".parse().map_err(bench_error)?;
        let mut log = Log::open(Arc::clone(store), &LogOptions::new([2; 32])).await?;
        let opened = open_job(&mut log, &job, keep).await?;
        Ok(Self {
            store: Arc::clone(store),
            producer,
            job,
            opened,
            uploaded: 0,
        })
    }

    pub(super) fn uploaded_bytes(&self) -> u64 {
        self.uploaded
    }

    /// Commits whole objects until step `step` exists.
    pub(super) async fn commit_up_to(&mut self, step: Step) -> Result<(), CliError> {
        while self.producer.next_seq() < step {
            self.commit().await?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), CliError> {
        let first = self.producer.next_seq();
        let key = self.producer.key((first, first + OBJECT_TGBS - 1), 0);
        let body = Bytes::from(vec![7; (OBJECT_TGBS * STEP_BYTES) as usize]);
        let _ = self.store.upload(&key, body).await?;
        self.uploaded += OBJECT_TGBS * STEP_BYTES;
        let tgbs = (0..OBJECT_TGBS).map(|n| tgb(&key, n)).collect();
        self.producer.commit(tgbs).await
    }

    /// Stores the job's progress up to `step`, and a checkpoint there if `marked`.
    pub(super) async fn progress(&self, step: Step, marked: bool) -> Result<(), CliError> {
        let (job, opened, stream) = (self.job.clone(), self.opened, stream().stream_id);
        let progress = Progress {
            format: 1,
            stream,
            job: job.clone(),
            opened,
            attempt: 0,
            id: ATTEMPT,
            node: "bench".to_owned(),
            first: 0,
            last: 0,
            step,
            at: String::new(),
        };
        let mark = Mark {
            format: 1,
            stream,
            job,
            opened,
            attempt: 0,
            id: ATTEMPT,
            dp_rank: None,
            dp_size: 1,
            step,
            state: "{}".to_owned(),
        };
        let put = async |key: String, body: Vec<u8>| self.store.create(&key, body.into()).await;
        let _ = put(progress.key(), progress.to_json()).await?;
        if marked {
            let _ = put(mark.key(), mark.to_json()).await?;
        }
        Ok(())
    }
}

fn tgb(key: &str, n: u64) -> TgbRecord {
    TgbRecord {
        rows: u64::from(SLICES),
        tokens: u64::from(SLICES) * 8,
        digest: Digest([n as u8; 32]),
        parts: vec![ObjectPart {
            key: key.to_owned(),
            offset: n * STEP_BYTES,
            length: STEP_BYTES,
            first_slice: 0,
            slices: SLICES,
            frame_bytes: Some(STEP_BYTES / u64::from(SLICES)),
            index: None,
        }],
        provenance: None,
        cost: None,
    }
}

async fn open_job(log: &mut Log, job: &JobName, keep: u32) -> Result<Version, CliError> {
    let entry = Entry::JobOpened(JobOpened {
        request: RequestId([1; 16]),
        job: job.clone(),
        start: 0,
        keep,
        holds: true,
        paces: false,
        lease_seconds: None,
    });
    let opened = log
        .commit_entry("bench", |_| entry.clone())
        .await?
        .ok_or_else(|| bench_error("the job was open before"))?;
    let attempt = Entry::AttemptOpened(AttemptOpened {
        job: job.clone(),
        opened,
        attempt: ATTEMPT,
        predecessor: None,
        parent: None,
        inherited: None,
        start: 0,
        dp_size: 1,
        mesh: Vec::new(),
    });
    log.commit_entry("bench", |_| attempt.clone()).await?;
    Ok(opened)
}
