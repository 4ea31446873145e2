//! The probe accepts stores that keep the contract and refuses others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;

use super::*;
use crate::memory::MemoryStore;
use crate::{Halves, Inspect, layer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A create ignores its If-None-Match and overwrites the object.
    Overwrites,
    /// Two racers are answered "created".
    TwoWinners,
    /// Each second read of an object has one wrong bit.
    WrongRead,
    /// The winner's bytes are replaced by a loser's.
    LosersBytes,
    /// Losers are answered 409.
    Conflicts,
    /// The winner's answer is lost.
    LostAnswer,
    /// A missing key answers 403.
    NoListBucket,
    /// Every create fails for good.
    ReadOnly,
    /// The first race is all 503.
    Busy,
    /// Bodies may be late, and are refused then.
    LateBodies,
    /// Bodies may be late, and the key is checked before they arrive.
    ChecksFirst,
}

#[derive(Debug)]
struct Flawed {
    inner: Arc<MemoryStore>,
    flaw: Flaw,
    creates: AtomicUsize,
    /// Reads of existing objects.
    reads: AtomicUsize,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        let inner = MemoryStore::new();
        Self {
            inner,
            flaw,
            creates: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
        }
    }

    fn error(kind: ErrorKind, effect: Effect) -> StoreError {
        StoreError::new(Op::Create, "memory://flawed", kind, effect, "made up")
    }
}

#[async_trait]
impl layer::Intercept for Flawed {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let nth = self.creates.fetch_add(1, SeqCst);
        match self.flaw {
            Flaw::ReadOnly => return Err(Self::error(ErrorKind::Denied, Effect::DidNot)),
            Flaw::Busy if nth < RACERS => {
                return Err(Self::error(ErrorKind::Throttled, Effect::Unknown));
            }
            Flaw::Overwrites => {
                self.inner.overwrite(key, body);
                return Ok(Create::Created);
            }
            Flaw::LosersBytes if nth == 3 => self.inner.overwrite(key, body.clone()),
            _ => {}
        }
        match (self.inner.create(key, body).await?, self.flaw) {
            (Create::Exists, Flaw::Conflicts) => {
                Err(Self::error(ErrorKind::Conflict, Effect::Unknown))
            }
            (Create::Exists, Flaw::TwoWinners) if nth == 5 => Ok(Create::Created),
            (Create::Created, Flaw::LostAnswer) => {
                Err(Self::error(ErrorKind::Timeout, Effect::Unknown))
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        if self.flaw == Flaw::NoListBucket {
            return Err(StoreError::new(
                Op::Get,
                key,
                ErrorKind::Denied,
                Effect::DidNot,
                "403",
            ));
        }
        let bytes = self.inner.get(key, at_most).await?;
        if self.flaw == Flaw::WrongRead && self.reads.fetch_add(1, SeqCst).is_multiple_of(2) {
            let mut wrong = bytes.to_vec();
            wrong[0] ^= 1;
            return Ok(wrong.into());
        }
        Ok(bytes)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

#[async_trait]
impl Inspect for Flawed {
    async fn may_create(&self, _key: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn tidy(&self, _prefix: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn put_in_halves(
        &self,
        key: &str,
        body: Bytes,
        halves: Halves,
    ) -> Option<Result<Create, StoreError>> {
        let looked = self.inner.head(key).await;
        halves.sent.send(()).unwrap();
        halves.go_on.await.unwrap();
        Some(match (self.flaw, looked) {
            (Flaw::ChecksFirst, Err(_)) => {
                self.inner.overwrite(key, body);
                Ok(Create::Created)
            }
            (Flaw::LateBodies, _) => self.inner.create(key, body).await,
            _ => return None,
        })
    }
}

#[tokio::test]
async fn stores_that_keep_the_contract_pass_and_stay_clean() {
    for flaw in [
        Flaw::None,
        Flaw::Conflicts,
        Flaw::LostAnswer,
        Flaw::Busy,
        Flaw::LateBodies,
        Flaw::WrongRead,
    ] {
        let store = Flawed::new(flaw);
        probe(&store, 1, 0)
            .await
            .unwrap_or_else(|error| panic!("{flaw:?}: {error}"));
        assert_eq!(store.inner.keys(), Vec::<String>::new(), "{flaw:?}");
    }
}

#[tokio::test]
async fn stores_that_break_it_are_refused() {
    for (flaw, part) in [
        (Flaw::Overwrites, "16 of 16 concurrent creates"),
        (Flaw::TwoWinners, "2 of 16 concurrent creates"),
        (Flaw::LosersBytes, "bytes of the writer that won"),
        // Races of whole bodies have one winner: only a late body reveals the flaw.
        (
            Flaw::ChecksFirst,
            "2 of 2 concurrent creates, one of a late body,",
        ),
    ] {
        let error = probe(&Flawed::new(flaw), 1, 0).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contract, "{flaw:?}: {error}");
        assert!(error.to_string().contains(part), "{flaw:?}: {error}");
        assert!(
            error.to_string().contains("If-None-Match"),
            "{flaw:?}: {error}"
        );
    }
}

#[tokio::test]
async fn missing_permissions_are_named_and_readers_may_lack_create() {
    let error = probe(&Flawed::new(Flaw::NoListBucket), 1, 0)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("s3:ListBucket"), "{error}");
    let read_only = Flawed::new(Flaw::ReadOnly);
    assert_eq!(
        probe(&read_only, 1, 0).await.unwrap_err().kind,
        ErrorKind::Denied
    );
    probe_read(&read_only, 1).await.unwrap();
    probe_long(&read_only, 1, 5, Access::Read).await.unwrap();
}

#[tokio::test]
async fn the_long_form_counts() {
    let clean = probe_long(&Flawed::new(Flaw::None), 1, 5, Access::Write)
        .await
        .unwrap();
    assert_eq!(
        clean,
        ProbeReport {
            rounds: 5,
            ..ProbeReport::default()
        }
    );
    let unclear = probe_long(&Flawed::new(Flaw::Conflicts), 1, 2, Access::Write)
        .await
        .unwrap();
    assert_eq!(
        unclear,
        ProbeReport {
            rounds: 2,
            unclear_answers: 30,
            ..ProbeReport::default()
        }
    );
}
