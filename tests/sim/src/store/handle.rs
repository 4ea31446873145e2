//! The store as one actor sees it, which implements the contract of `batchweave-store`.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_store::{
    Body, Chunks, Create, Effect, ErrorKind, ListPage, ObjectMeta, Op, Store, StoreError,
};
use bytes::{Buf, Bytes};
use futures::StreamExt;

use crate::actor::{Actor, Moment};
use crate::store::link::Link;
use crate::store::outcome::Reply;
use crate::store::{ROOT, Request, SimStore};
use crate::trace::Answer;

/// The most keys in one request for deletion.
const DELETES_MAX: usize = 1000;

/// A store handle of one actor.
#[derive(Debug)]
struct Handle {
    store: Arc<SimStore>,
    actor: Arc<Actor>,
    link: Mutex<Link>,
}

impl SimStore {
    /// Returns the store as `actor` sees it.
    pub fn handle(self: &Arc<Self>, actor: &Arc<Actor>) -> Arc<dyn Store> {
        Arc::new(Handle {
            store: Arc::clone(self),
            actor: Arc::clone(actor),
            link: Mutex::new(Link::new(
                self.settings.link,
                self.settings.seed,
                &actor.name,
            )),
        })
    }
}

impl Handle {
    /// Sends a request. Returns its number within the actor, for the moment of a crash.
    async fn send(&self, op: Op, key: &str, body: &Bytes) -> (u64, Request) {
        let number = self.actor.count();
        self.actor.pass(number, Moment::Before).await;
        (number, self.store.send(&self.actor, op, key, body))
    }

    /// Waits for the answer, delayed by `late` for the transfer of its bytes. Returns `None` if it
    /// is unchanged.
    async fn answer(&self, number: u64, request: &Request, late: Duration) -> Option<Reply> {
        self.actor.pass(number, Moment::Sent).await;
        self.store
            .time
            .sleep_until(request.sent + request.outcome.answer + late)
            .await;
        self.actor.pass(number, Moment::Answered).await;
        (request.outcome.reply != Reply::True).then_some(request.outcome.reply)
    }

    fn fail(&self, request: &Request, kind: ErrorKind, effect: Effect, text: &str) -> StoreError {
        let answer = Answer::Failed(kind, effect);
        self.store.answered(&self.actor, request, answer);
        SimStore::error(request, kind, effect, text)
    }

    async fn write(&self, op: Op, key: &str, body: Bytes) -> Result<Option<Bytes>, StoreError> {
        let (number, request) = self.send(op, key, &body).await;
        let request = Arc::new(request);
        let (tell, told) = tokio::sync::oneshot::channel();
        if let Some(after) = request.outcome.effect {
            let (store, actor) = (Arc::clone(&self.store), Arc::clone(&self.actor));
            let (request, body) = (Arc::clone(&request), body.clone());
            tokio::spawn(async move {
                store.time.sleep_until(request.sent + after).await;
                let there = match op {
                    Op::Delete => {
                        store.remove(&actor, request.id, &request.key);
                        None
                    }
                    _ => store.land(&actor, &request, &body),
                };
                // The receiver may be gone.
                let _ = tell.send(there);
            });
        }
        match self.answer(number, &request, Duration::ZERO).await {
            None => {
                let there = told.await.unwrap_or_default();
                let answer = match (&there, op) {
                    (_, Op::Delete) => Answer::Deleted,
                    (None, _) => Answer::Created,
                    (Some(_), _) => Answer::Exists,
                };
                self.store.answered(&self.actor, &request, answer);
                Ok(there)
            }
            Some(Reply::Fail(kind, effect, text)) => Err(self.fail(&request, kind, effect, text)),
            Some(_) => {
                self.store.answered(&self.actor, &request, Answer::Exists);
                Ok(Some(body))
            }
        }
    }

    /// Sends one request for many keys. It has one outcome, but single keys may be refused.
    async fn delete_some(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let (number, request) = self.send(Op::Delete, &keys[0], &Bytes::new()).await;
        let request = Arc::new(request);
        let (refused, gone) = self.store.refuse_some(&self.actor, &request, keys);
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        if let Some(after) = request.outcome.effect {
            let (store, actor) = (Arc::clone(&self.store), Arc::clone(&self.actor));
            let request = Arc::clone(&request);
            tokio::spawn(async move {
                store.time.sleep_until(request.sent + after).await;
                for key in gone {
                    store.remove(&actor, request.id, &key);
                }
                // The receiver may be gone.
                let _ = tell.send(());
            });
        }
        let answer = self.answer(number, &request, Duration::ZERO).await;
        if let Some(Reply::Fail(kind, effect, text)) = answer {
            return Err(self.fail(&request, kind, effect, text));
        }
        // The answer never precedes the effect, also when both fall on one tick of the clock.
        let _ = told.await;
        self.store.answered(&self.actor, &request, Answer::Deleted);
        Ok(refused)
    }

    async fn read<T>(
        &self,
        op: Op,
        key: &str,
        look: impl FnOnce(&SimStore) -> Option<(T, usize)> + Send,
        tell: impl FnOnce(&T) -> Answer + Send,
    ) -> Result<T, StoreError>
    where
        T: Send,
    {
        let (number, request) = self.send(op, key, &Bytes::new()).await;
        let found = match request.outcome.effect {
            Some(after) => {
                self.store.time.sleep_until(request.sent + after).await;
                look(&self.store)
            }
            None => None,
        };
        let bytes = found.as_ref().map_or(0, |(_, bytes)| *bytes);
        let carried = self.store.settings.link.takes(bytes);
        if let Some(Reply::Fail(kind, effect, text)) = self.answer(number, &request, carried).await
        {
            return Err(self.fail(&request, kind, effect, text));
        }
        let answer = found
            .as_ref()
            .map_or(Answer::Missing, |(found, _)| tell(found));
        self.store.answered(&self.actor, &request, answer);
        found.map(|(found, _)| found).ok_or_else(|| {
            let (kind, effect) = (ErrorKind::NotFound, Effect::DidNot);
            SimStore::error(&request, kind, effect, "no such object")
        })
    }

    async fn get_whole(&self, key: &str, at_most: u64, fresh: bool) -> Result<Bytes, StoreError> {
        let bytes = self
            .get_some(Op::Get, key, None, fresh)
            .await?
            .unwrap_or_default();
        let size = bytes.len() as u64;
        if size > at_most {
            let location = format!("{ROOT}/{key}");
            return Err(StoreError::too_large(location, Some(size), at_most));
        }
        Ok(bytes)
    }

    /// Returns the bytes that arrive of a range.
    async fn range(&self, key: &str, range: Range<u64>, fresh: bool) -> Result<Bytes, StoreError> {
        let read = self.get_some(Op::GetRange, key, Some(range), fresh);
        read.await?.ok_or_else(|| {
            let (kind, effect) = (ErrorKind::Range, Effect::DidNot);
            let location = format!("{ROOT}/{key}");
            let text = "the range lies beyond the object";
            StoreError::new(Op::GetRange, location, kind, effect, text)
        })
    }

    /// Returns the bytes that arrive of an object, or of a range of it; the stored object is whole.
    async fn get_some(
        &self,
        op: Op,
        key: &str,
        range: Option<Range<u64>>,
        fresh: bool,
    ) -> Result<Option<Bytes>, StoreError> {
        let look = |store: &SimStore| {
            let object = store.find(key)?;
            let range = range.map_or(0..object.len(), |r| r.start as usize..r.end as usize);
            if range.start > range.end || range.end > object.len() {
                return Some((None, 0));
            }
            let bytes = object.slice(range);
            let calm = store.time.now() >= store.settings.calm_at;
            let heard = if calm {
                (bytes, false)
            } else {
                let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
                link.carries(op, &bytes, fresh)
            };
            let len = heard.0.len();
            Some((Some(heard), len))
        };
        let tell = |heard: &Option<(Bytes, bool)>| match heard {
            Some((_, true)) => Answer::Lied,
            _ => Answer::Found,
        };
        let heard = self.read(op, key, look, tell).await?;
        Ok(heard.map(|(bytes, _)| bytes))
    }
}

/// Returns the body of an answer that has arrived completely.
struct Arrived(Bytes);

#[async_trait]
impl Body for Arrived {
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        let count = into.len().min(self.0.len());
        self.0.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

#[async_trait]
impl Store for Handle {
    fn root(&self) -> &str {
        ROOT
    }

    fn key_bytes_max(&self) -> usize {
        self.store.settings.key_bytes_max
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        match self.write(Op::Create, key, body).await? {
            None => Ok(Create::Created),
            Some(_) => Ok(Create::Exists),
        }
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let size = body.len();
        match self.write(Op::Upload, key, body).await? {
            Some(there) if there.len() != size => Ok(Create::Exists),
            _ => Ok(Create::Created),
        }
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.get_whole(key, at_most, false).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.get_whole(key, at_most, true).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let bytes = self.range(key, range, false).await?;
        Ok(futures::stream::iter([Ok(bytes)]).boxed())
    }

    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        let bytes = self.range(key, range, fresh).await?;
        Ok(Box::new(Arrived(bytes)))
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let look = |store: &SimStore| store.find(key).map(|object| (object.len() as u64, 0));
        let size = self.read(Op::Head, key, look, |_| Answer::Found).await?;
        Ok(ObjectMeta::new(key.to_owned(), size))
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        let actor = &self.actor;
        self.read(
            Op::List,
            prefix,
            |store| Some((store.list(actor, prefix, page.as_deref()), 0)),
            |page| Answer::Listed(page.objects.len() as u32),
        )
        .await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.write(Op::Delete, key, Bytes::new()).await.map(|_| ())
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let mut refused = Vec::new();
        for keys in keys.chunks(DELETES_MAX) {
            refused.extend(self.delete_some(keys).await?);
        }
        Ok(refused)
    }
}
