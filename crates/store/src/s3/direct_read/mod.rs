//! Large reads without the SDK's HTTP client: a body goes from the socket straight into the caller's
//! memory. The SDK signs the requests; answers are interpreted by the same rules.
//!
//! Invariants:
//! - A request is retried only by [`source`], a bounded number of times, or resumed by [`Reading`] where
//!   its body broke off, with the same version of the object.
//! - A request that fails in an unknown way is repeated through the SDK, whose answer counts.
//! - A connection returns to the pool only after the last byte of an answer.

mod authority;
mod exchange;
mod head;
mod pool;
mod signed;
mod tunnel;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use self::exchange::{Answer, Asked};
use super::S3Store;
use crate::body::Copied;
use crate::limits::{CHUNK_TIMEOUT, DATA_ATTEMPTS, RESUMES_MAX};
use crate::speed::Speed;
use crate::{Backoff, Body, Effect, ErrorKind, LowWater, Op, StoreError, download};

/// Time without direct reads after one was refused that the SDK could do.
const OFF_FOR: Duration = Duration::from_mins(10);

/// The state that all direct reads share.
#[derive(Default)]
pub(super) struct DirectRead {
    pool: pool::Pool,
    signatures: signed::Signatures,
    /// All reads go through the SDK until then.
    off: Mutex<Option<Instant>>,
}

impl DirectRead {
    pub(super) fn new(low_water: Option<LowWater>) -> Self {
        Self {
            pool: pool::Pool::new(low_water),
            ..Self::default()
        }
    }

    fn is_off(&self) -> bool {
        let off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
        off.is_some_and(|until| Instant::now() < until)
    }

    fn turn_off(&self, store: &S3Store, why: &str) {
        let mut off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
        if off.is_none_or(|until| until <= Instant::now()) {
            let (root, minutes) = (&store.0.root, OFF_FOR.as_secs() / 60);
            tracing::warn!(root, why, minutes, "large reads go through the SDK for now");
        }
        *off = Some(Instant::now() + OFF_FOR);
    }
}

/// The source of a body's bytes.
enum Source {
    DirectRead(Answer),
    Sdk(Copied),
    /// The body ended, or broke off.
    Gone,
}

/// Requests a range and returns its body.
pub(super) async fn open(
    store: S3Store,
    key: &str,
    range: Range<u64>,
    fresh: bool,
) -> Result<Box<dyn Body>, StoreError> {
    // HTTP has no empty ranges, and servers keep sizes in signed 64 bits.
    let plain = !range.is_empty() && i64::try_from(range.end).is_ok();
    if !plain || store.0.direct_read.is_off() {
        let chunks = download::range(Arc::new(store), key, range).await?;
        return Ok(Box::new(Copied::new(chunks).await?));
    }
    let source = source(&store, key, &range, None, fresh).await?;
    Ok(Box::new(Reading {
        key: key.to_owned(),
        etag: etag(&source),
        store,
        left: range,
        source,
        speed: Speed::default(),
        resumes: 0,
        backoff: Backoff::STORE,
    }))
}

fn etag(source: &Source) -> Option<String> {
    match source {
        Source::DirectRead(answer) => answer.head.value("etag").map(str::to_owned),
        Source::Sdk(_) | Source::Gone => None,
    }
}

/// Requests a range, with retries of failures that may pass.
async fn source(
    store: &S3Store,
    key: &str,
    range: &Range<u64>,
    etag: Option<&str>,
    fresh: bool,
) -> Result<Source, StoreError> {
    let (mut tries, mut backoff) = (0, Backoff::STORE);
    loop {
        match exchange::ask(store, key, range, etag, fresh || tries > 0).await? {
            Asked::Answer(answer) => return Ok(Source::DirectRead(answer)),
            Asked::Refused(why) => {
                let etag = etag.map(str::to_owned);
                let chunks =
                    download::from(Arc::new(store.clone()), key, range.clone(), etag).await?;
                store.0.direct_read.turn_off(store, &why);
                return Ok(Source::Sdk(Copied::new(chunks).await?));
            }
            Asked::Failed(error) => {
                tries += 1;
                // The caller can reduce its load; here one could only wait.
                if error.kind == ErrorKind::Throttled || tries == DATA_ATTEMPTS {
                    return Err(error);
                }
                tracing::debug!(key, %error, "retrying a read");
            }
        }
        download::pause(&mut backoff).await;
    }
}

/// A read in progress.
struct Reading {
    store: S3Store,
    key: String,
    left: Range<u64>,
    etag: Option<String>,
    source: Source,
    speed: Speed,
    resumes: u32,
    backoff: Backoff,
}

#[async_trait]
impl Body for Reading {
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        let wanted = self.left.end - self.left.start;
        let most = usize::try_from(wanted).map_or(into.len(), |wanted| wanted.min(into.len()));
        let into = &mut into[..most];
        while !into.is_empty() {
            match self.some(into).await? {
                Ok(count) => {
                    self.left.start += count as u64;
                    if self.left.is_empty() {
                        self.end();
                    }
                    return Ok(count);
                }
                Err(why) => self.resume(why).await?,
            }
        }
        Ok(0)
    }
}

impl Reading {
    /// Reads some bytes, or returns why the source broke off. An error of the SDK is final.
    async fn some(&mut self, into: &mut [u8]) -> Result<Result<usize, String>, StoreError> {
        let asked = Instant::now();
        let early = || {
            format!(
                "the body ended {} bytes early",
                self.left.end - self.left.start
            )
        };
        let read = match &mut self.source {
            Source::Gone => return Ok(Err(early())),
            Source::Sdk(body) => match body.read(into).await? {
                0 => return Ok(Err(early())),
                count => return Ok(Ok(count)),
            },
            Source::DirectRead(answer) if !answer.early.is_empty() => {
                let count = answer.early.len().min(into.len());
                into[..count].copy_from_slice(&answer.early.split_to(count));
                return Ok(Ok(count));
            }
            Source::DirectRead(answer) => answer.connection.read(into).await,
        };
        Ok(match read {
            Ok(Ok(0)) => Err(early()),
            Ok(Ok(count)) => self.speed.note(asked.elapsed(), count).map(|()| count),
            Ok(Err(why)) => Err(format!("the body broke off: {why}")),
            Err(_) => Err(format!("no data for {} s", CHUNK_TIMEOUT.as_secs())),
        })
    }

    /// Returns the connection to the pool after the last byte.
    fn end(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Gone);
        if let Source::DirectRead(answer) = source
            && answer.early.is_empty()
            && answer.head.keeps_open()
        {
            self.store.0.direct_read.pool.give_back(answer.connection);
        }
    }

    async fn resume(&mut self, why: String) -> Result<(), StoreError> {
        self.source = Source::Gone;
        if self.resumes == RESUMES_MAX {
            let detail = format!("{why}, after {RESUMES_MAX} resumed reads");
            let (op, kind) = (Op::GetRange, ErrorKind::Timeout);
            return Err(self
                .store
                .error(op, &self.key, kind, Effect::DidNot, detail));
        }
        tracing::debug!(key = self.key, at = self.left.start, why, "resuming a read");
        download::pause(&mut self.backoff).await;
        self.resumes += 1;
        self.speed = Speed::default();
        let etag = self.etag.take();
        self.source = source(&self.store, &self.key, &self.left, etag.as_deref(), true).await?;
        self.etag = self::etag(&self.source);
        Ok(())
    }
}
