//! The requests of one store: signed, timed, retried, and read as answers.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use http::header::RANGE;
use http::{HeaderValue, Method};

use super::answer::{Answer, Fault};
use super::refusal::refused;
use super::transport::{begun, with_body};
use super::{CloudStore, Request};
use crate::download::{self, Reads};
use crate::limits::{self, DATA_TIMEOUT};
use crate::{Backoff, Create, Effect, ErrorKind, Op, Retry, Store, StoreError};

impl CloudStore {
    /// Sends one request, and returns its answer whatever its status is.
    pub(crate) async fn once(
        &self,
        op: Op,
        key: &str,
        request: Request,
    ) -> Result<Answer, StoreError> {
        let within = limits::commit(self.0.patience, request.body().len());
        let sent = tokio::time::timeout(within, self.exchange(request, within)).await;
        let late = || Fault {
            kind: ErrorKind::Timeout,
            sure: false,
            detail: format!("no answer for {} s", within.as_secs()),
        };
        let answer = sent.unwrap_or_else(|_| Err(late()));
        answer.map_err(|fault| self.failed(op, key, &fault))
    }

    /// Sends one request without credentials, and returns its answer whatever its status is.
    pub(crate) async fn unsigned(
        &self,
        op: Op,
        key: &str,
        request: Request,
    ) -> Result<Answer, StoreError> {
        let within = DATA_TIMEOUT + limits::transfer(request.body().len());
        let answer = self.carry(request, within).await;
        answer.map_err(|fault| self.failed(op, key, &fault))
    }

    /// Sends a request until it succeeds, is refused, or all tries have failed.
    pub(crate) async fn answered(
        &self,
        op: Op,
        key: &str,
        request: impl Fn() -> Request,
    ) -> Result<Answer, StoreError> {
        let answer = self.tried(op, key, request, |_| false).await?;
        Ok(answer)
    }

    /// As [`CloudStore::answered`], where also refusals for which `accepts` holds are answers.
    pub(crate) async fn tried(
        &self,
        op: Op,
        key: &str,
        request: impl Fn() -> Request,
        accepts: impl Fn(&Answer) -> bool,
    ) -> Result<Answer, StoreError> {
        let (tries, wait) = limits::tries(self.0.patience);
        let accepts = &accepts;
        let once = || {
            let request = request();
            async move {
                let within = wait + limits::transfer(request.body().len());
                match self.exchange(request, within).await {
                    Ok(answer) if answer.is_success() || accepts(&answer) => Ok(answer),
                    Ok(answer) => Err(self.failed(op, key, &self.refused(op, &answer))),
                    Err(fault) => Err(self.failed(op, key, &fault)),
                }
            }
        };
        let retry = Retry::calls(tries, Backoff::STORE);
        retry
            .run(once, |error| {
                tracing::debug!(key, %error, "retrying a request");
            })
            .await
    }

    async fn exchange(&self, request: Request, within: Duration) -> Result<Answer, Fault> {
        let signed = self.0.dialect.authorize(request).await?;
        self.carry(signed, within).await
    }

    async fn carry(&self, request: Request, within: Duration) -> Result<Answer, Fault> {
        let (transport, only_head) = (&self.0.transport, request.method() == Method::HEAD);
        let request = with_body(request);
        let answer = transport.send(&transport.kept, request, within).await?;
        if only_head {
            return Ok(Answer::of_head(&answer));
        }
        transport.collect(answer).await
    }

    pub(super) fn refused(&self, op: Op, answer: &Answer) -> Fault {
        refused(&*self.0.dialect, op, answer)
    }

    /// Reads the answer to a conditional create.
    pub(crate) fn created(&self, op: Op, key: &str, answer: &Answer) -> Result<Create, StoreError> {
        if answer.is_success() {
            return Ok(Create::Created);
        }
        if self.is_there(answer) {
            return Ok(Create::Exists);
        }
        Err(self.failed(op, key, &self.refused(op, answer)))
    }

    /// Returns whether a create was refused because the object exists.
    pub(crate) fn is_there(&self, answer: &Answer) -> bool {
        let dialect = &self.0.dialect;
        let refusal = dialect.refusal(&answer.headers, &answer.body);
        dialect.exists(answer.status, &refusal.code)
    }

    /// Returns the error of a store that answers what no store may.
    pub(crate) fn broken(&self, op: Op, key: &str, why: impl Into<String>) -> StoreError {
        self.error(op, key, ErrorKind::Contract, Effect::DidNot, why)
    }

    /// Requests the bytes of an object; a refusal for which `accepts` holds is `None`.
    async fn read(
        &self,
        op: Op,
        key: &str,
        request: Request,
        fresh: bool,
        accepts: impl Fn(u16) -> bool,
    ) -> Result<Option<download::Answer>, StoreError> {
        let (tries, within) = limits::tries(self.0.patience);
        let transport = &self.0.transport;
        let client = if fresh {
            &transport.fresh
        } else {
            &transport.kept
        };
        let (request, accepts) = (&request, &accepts);
        let once = || async move {
            let read = async {
                let signed = self.0.dialect.authorize(request.clone()).await?;
                let answer = transport.send(client, with_body(signed), within).await?;
                if answer.status().is_success() {
                    return Ok(Some(begun(answer)));
                }
                let answer = transport.collect(answer).await?;
                if accepts(answer.status) {
                    return Ok(None);
                }
                Err(self.refused(op, &answer))
            };
            let read: Result<_, Fault> = read.await;
            read.map_err(|fault| self.failed(op, key, &fault))
        };
        let retry = Retry::calls(tries, Backoff::STORE);
        retry
            .run(
                once,
                |error| tracing::debug!(key, %error, "retrying a read"),
            )
            .await
    }
}

#[async_trait]
impl Reads for CloudStore {
    fn root(&self) -> &str {
        &self.0.root
    }

    async fn request(&self, key: &str, fresh: bool) -> Result<download::Answer, StoreError> {
        let request = self.0.dialect.get(&self.full(key));
        let answer = self.read(Op::Get, key, request, fresh, |_| false).await?;
        answer.ok_or_else(|| self.broken(Op::Get, key, "the answer is none"))
    }

    async fn request_range(
        &self,
        key: &str,
        range: &Range<u64>,
        _etag: Option<String>,
    ) -> Result<Option<download::Answer>, StoreError> {
        let mut request = self.0.dialect.get(&self.full(key));
        let wanted = format!("bytes={}-{}", range.start, range.end - 1);
        let value = HeaderValue::try_from(wanted)
            .map_err(|why| self.broken(Op::GetRange, key, why.to_string()))?;
        request.headers_mut().insert(RANGE, value);
        self.read(Op::GetRange, key, request, false, |status| status == 416)
            .await
    }

    async fn size(&self, key: &str) -> Result<u64, StoreError> {
        Ok(self.head(key).await?.size)
    }
}
