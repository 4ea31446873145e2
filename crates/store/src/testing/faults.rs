//! A wrapper that makes any store fail: at random from a seed, or at a chosen call.
//!
//! Writes can fail in all four ways: happened or not, reported or not. The seed is part of
//! the root, so that every error message names it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::layer::{self, Call};
use crate::{Chunks, Effect, ErrorKind, Op, Store, StoreError};

/// One way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused without effect, and reported so.
    Before,
    /// It takes effect, but the answer is lost.
    LostAnswer,
    /// It has no effect, and the answer is lost.
    LostRequest,
    /// 503 SlowDown, without effect, which the answer leaves open.
    Throttled,
    /// 409, without effect, which the answer leaves open.
    Conflict,
    /// The call is delayed.
    Delay(Duration),
    /// A ranged read breaks in the middle; a whole read fails.
    Truncated,
    /// One byte of what is read is wrong.
    FlippedByte,
}

/// Number of calls out of 1,000 that each fault strikes; at most one strikes a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    pub before: u16,
    pub lost_answer: u16,
    pub lost_request: u16,
    pub throttled: u16,
    pub conflict: u16,
    /// Rate of [`Fault::Delay`], each up to `delay_max`.
    pub delay: u16,
    pub delay_max: Duration,
    pub truncated: u16,
    pub flipped_byte: u16,
}

impl Rates {
    /// Returns rates of every fault that a correct client must hide (all but flipped bytes).
    pub fn rough() -> Self {
        Self {
            before: 30,
            lost_answer: 60,
            lost_request: 60,
            throttled: 30,
            conflict: 20,
            delay: 100,
            delay_max: Duration::from_millis(50),
            truncated: 30,
            flipped_byte: 0,
        }
    }

    fn draw(&self, rng: &mut StdRng) -> Option<Fault> {
        let mut ticket = rng.random_range(0..1000u16);
        let delay = Fault::Delay(self.delay_max.mul_f64(rng.random_range(0.0..1.0)));
        let odds = [
            (self.before, Fault::Before),
            (self.lost_answer, Fault::LostAnswer),
            (self.lost_request, Fault::LostRequest),
            (self.throttled, Fault::Throttled),
            (self.conflict, Fault::Conflict),
            (self.delay, delay),
            (self.truncated, Fault::Truncated),
            (self.flipped_byte, Fault::FlippedByte),
        ];
        for (odd, fault) in odds {
            match ticket.checked_sub(odd) {
                None => return Some(fault),
                Some(rest) => ticket = rest,
            }
        }
        None
    }
}

#[derive(Debug)]
struct Ordered {
    op: Op,
    prefix: String,
    fault: Fault,
}

/// A store with injected faults. Clones share faults and seed.
#[derive(Debug, Clone)]
pub struct FaultStore(Arc<State>);

#[derive(Debug)]
struct State {
    inner: Arc<dyn Store>,
    root: String,
    rates: BTreeMap<Op, Rates>,
    rng: Mutex<StdRng>,
    ordered: Mutex<Vec<Ordered>>,
    enabled: AtomicBool,
    struck: AtomicU64,
}

impl FaultStore {
    /// Wraps `inner` and prints the seed, with which a run on one thread can be replayed.
    pub fn new(
        inner: Arc<dyn Store>,
        seed: u64,
        rates: impl IntoIterator<Item = (Op, Rates)>,
    ) -> Self {
        eprintln!("fault store around {}: seed {seed}", inner.root());
        Self(Arc::new(State {
            root: format!("{} (faults, seed {seed})", inner.root()),
            inner,
            rates: rates.into_iter().collect(),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            ordered: Mutex::default(),
            enabled: AtomicBool::new(true),
            struck: AtomicU64::new(0),
        }))
    }

    /// Wraps `inner` with the same rates for every operation.
    pub fn everywhere(inner: Arc<dyn Store>, seed: u64, rates: Rates) -> Self {
        Self::new(inner, seed, Op::CONTRACT.map(|op| (op, rates)))
    }

    /// Orders one fault for the next call of `op` on a key that begins with `prefix`; several
    /// orders for the same call are served one call each.
    pub fn inject(&self, op: Op, prefix: &str, fault: Fault) {
        let prefix = prefix.to_owned();
        lock(&self.0.ordered).push(Ordered { op, prefix, fault });
    }

    /// Turns all faults on or off, for example while a test checks the result.
    pub fn set_enabled(&self, enabled: bool) {
        self.0.enabled.store(enabled, Relaxed);
    }

    /// Returns how many faults have struck.
    pub fn struck(&self) -> u64 {
        self.0.struck.load(Relaxed)
    }

    fn draw(&self, op: Op, key: &str) -> Option<Fault> {
        if !self.0.enabled.load(Relaxed) {
            return None;
        }
        let fault = self.take_ordered(op, key).or_else(|| {
            let rates = self.0.rates.get(&op)?;
            rates.draw(&mut lock(&self.0.rng))
        });
        self.0.struck.fetch_add(u64::from(fault.is_some()), Relaxed);
        fault
    }

    fn take_ordered(&self, op: Op, key: &str) -> Option<Fault> {
        let mut ordered = lock(&self.0.ordered);
        let at = ordered
            .iter()
            .position(|order| order.op == op && key.starts_with(&order.prefix))?;
        Some(ordered.remove(at).fault)
    }

    fn error(&self, op: Op, key: &str, fault: Fault) -> StoreError {
        let (kind, effect) = match fault {
            Fault::Before => (ErrorKind::Unreachable, Effect::DidNot),
            Fault::Throttled => (ErrorKind::Throttled, Effect::Unknown),
            Fault::Conflict => (ErrorKind::Conflict, Effect::Unknown),
            _ => (ErrorKind::Timeout, Effect::Unknown),
        };
        StoreError::new(
            op,
            format!("{}/{key}", self.0.root),
            kind,
            effect,
            format!("made up: {fault:?}"),
        )
    }

    /// Runs `call` with the fault that strikes it; faults of the body are returned to the caller.
    async fn with_fault<T>(
        &self,
        op: Op,
        key: &str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<(T, Option<Fault>), StoreError> {
        let fault = self.draw(op, key);
        match fault {
            Some(Fault::Before | Fault::LostRequest | Fault::Throttled | Fault::Conflict) => {
                Err(self.error(op, key, fault.unwrap_or(Fault::Before)))
            }
            Some(Fault::LostAnswer) => {
                // The outcome of the call is lost.
                let _ = call.await;
                Err(self.error(op, key, Fault::LostAnswer))
            }
            Some(Fault::Delay(pause)) => {
                tokio::time::sleep(pause).await;
                Ok((call.await?, None))
            }
            body_fault => Ok((call.await?, body_fault)),
        }
    }

    fn damaged(&self, key: &str, read: (Bytes, Option<Fault>)) -> Result<Bytes, StoreError> {
        match read {
            (_, Some(fault @ Fault::Truncated)) => Err(self.error(Op::Get, key, fault)),
            (body, Some(Fault::FlippedByte)) => Ok(self.flip(&body)),
            (body, _) => Ok(body),
        }
    }

    fn flip(&self, body: &Bytes) -> Bytes {
        let mut wrong = BytesMut::from(&body[..]);
        if !wrong.is_empty() {
            let at = lock(&self.0.rng).random_range(0..wrong.len());
            wrong[at] ^= 1;
        }
        wrong.freeze()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl layer::Intercept for FaultStore {
    fn inner(&self) -> &dyn Store {
        self.0.inner.as_ref()
    }

    fn root(&self) -> &str {
        &self.0.root
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let (answer, _) = self.with_fault(call.op, call.key, run).await?;
        Ok(answer)
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let call = self.0.inner.get(key, at_most);
        let read = self.with_fault(Op::Get, key, call).await?;
        self.damaged(key, read)
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let call = self.0.inner.get_fresh(key, at_most);
        let read = self.with_fault(Op::Get, key, call).await?;
        self.damaged(key, read)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let half = (range.end.saturating_sub(range.start) / 2) as usize;
        let call = self.0.inner.get_range(key, range);
        let (chunks, fault) = self.with_fault(Op::GetRange, key, call).await?;
        Ok(match fault {
            Some(fault @ Fault::Truncated) => {
                let broken = self.error(Op::GetRange, key, fault);
                cut(chunks, half).chain(stream::iter([Err(broken)])).boxed()
            }
            Some(Fault::FlippedByte) => {
                let this = self.clone();
                let mut done = false;
                let mut flip_first = move |chunk: Bytes| {
                    let flip = !std::mem::replace(&mut done, true);
                    if flip { this.flip(&chunk) } else { chunk }
                };
                chunks.map(move |chunk| chunk.map(&mut flip_first)).boxed()
            }
            _ => chunks,
        })
    }

    /// Random faults strike the whole request, ordered ones their key alone.
    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        for key in keys {
            let ordered = self.take_ordered(Op::Delete, key);
            self.0
                .struck
                .fetch_add(u64::from(ordered.is_some()), Relaxed);
            if ordered.is_none() || ordered == Some(Fault::LostAnswer) {
                sent.push(key.clone());
            }
            if let Some(fault) = ordered {
                refused.push((key.clone(), self.error(Op::Delete, key, fault)));
            }
        }
        let first = sent.first().map_or("", String::as_str).to_owned();
        let call = self.0.inner.delete_many(&sent);
        let (more, _) = self.with_fault(Op::Delete, &first, call).await?;
        refused.extend(more);
        Ok(refused)
    }
}

/// Returns the first `length` bytes of a stream.
fn cut(chunks: Chunks, length: usize) -> Chunks {
    let first = chunks.scan(length, |left, chunk| {
        let chunk = chunk.map(|mut chunk| chunk.split_to(chunk.len().min(*left)));
        *left -= chunk.as_ref().map_or(0, Bytes::len);
        std::future::ready(
            Some(chunk).filter(|chunk| !matches!(chunk, Ok(bytes) if bytes.is_empty())),
        )
    });
    first.boxed()
}

#[cfg(test)]
mod tests;
