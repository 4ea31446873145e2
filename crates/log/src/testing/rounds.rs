//! A store for tests whose requests take a fixed virtual time, so that the elapsed time is the number of
//! sequential rounds of requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_store::layer::{self, Call};
use batchweave_store::{Store, StoreError};
use tokio::time::Instant;

/// Each request takes this long.
const ROUND: Duration = Duration::from_millis(100);

/// See the file's header. Needs a runtime whose time is paused.
#[derive(Debug)]
pub(crate) struct Rounds {
    inner: Arc<dyn Store>,
    asked: Mutex<Vec<String>>,
    /// Keys deleted at their first request, as by another writer that prunes.
    pub(crate) vanishing: Mutex<Vec<String>>,
    start: Mutex<Instant>,
}

impl Rounds {
    pub(crate) fn new(inner: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            asked: Mutex::default(),
            vanishing: Mutex::default(),
            start: Mutex::new(Instant::now()),
        })
    }

    /// Returns the sequential rounds and the requested keys since the last call.
    pub(crate) fn take(&self) -> (u128, Vec<String>) {
        let mut start = self.start.lock().unwrap();
        let rounds = start.elapsed().as_millis() / ROUND.as_millis();
        *start = Instant::now();
        (rounds, std::mem::take(&mut *self.asked.lock().unwrap()))
    }

    async fn ask(&self, key: &str) -> Result<(), StoreError> {
        self.asked.lock().unwrap().push(key.to_owned());
        tokio::time::sleep(ROUND).await;
        let vanishes = {
            let mut vanishing = self.vanishing.lock().unwrap();
            let place = vanishing.iter().position(|v| v == key);
            place.map(|at| vanishing.remove(at))
        };
        match vanishes {
            Some(key) => self.inner.delete(&key).await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl layer::Intercept for Rounds {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        self.ask(call.key).await?;
        run.await
    }
}
