//! The HTTP front: it counts each request, delays it, and injects its fault.
//!
//! A random part of the latency passes before the request is carried out and the rest after it, as on a
//! real network, so that a client that gives up early may find its request carried out.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Request, Response};
use rand::RngExt;
use rand::rngs::StdRng;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode};
use tokio_util::sync::CancellationToken;

use crate::faults::Subject;
use crate::journal::Journal;
use crate::op::classify;
use crate::stats::Counters;
use crate::storage::Storage;
use crate::wrong_reads;
use crate::{Fault, Faults, LatencyProfile, Op};

/// The state that all connections share.
pub(crate) struct Front {
    pub s3: S3Service,
    pub storage: Arc<Storage>,
    pub faults: Arc<Faults>,
    pub counters: Counters,
    pub journal: Journal,
    pub latency: LatencyProfile,
    pub rng: Mutex<StdRng>,
    /// Draws the position of wrong bytes.
    pub wrong_bytes: Mutex<StdRng>,
    pub requests: AtomicU64,
}

/// A stalled request is reset after this time, so that none stays for ever.
const MAX_STALL: Duration = Duration::from_mins(10);

/// The front of one connection.
#[derive(Clone)]
pub(crate) struct Connection {
    pub front: Arc<Front>,
    /// Cancelled to reset this connection.
    pub cut: CancellationToken,
    /// Every read over this connection returns wrong bytes from now on.
    pub spoiled: Arc<AtomicBool>,
}

impl hyper::service::Service<Request<Incoming>> for Connection {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let connection = self.clone();
        Box::pin(async move { Ok(connection.answer(request).await) })
    }
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let front = &self.front;
        let (op, key) = classified(&request);
        let headers = request.headers();
        let conditional = headers.contains_key(IF_NONE_MATCH) || headers.contains_key(IF_MATCH);
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        front.counters.request(op, length.unwrap_or(0));

        let (before, after) = front.draw_latency(op);
        let conditional = conditional && matches!(op, Op::Put | Op::Multipart);
        let fault = front.faults.decide(Subject {
            op,
            key: &key,
            conditional,
        });
        if let Some(fault) = fault {
            front.counters.fault(fault);
            tracing::debug!(%op, key, fault = fault.name(), "failing a request on order");
        }
        pause(before).await;
        let response = match fault {
            None if op == Op::Get && self.spoiled.load(Ordering::Relaxed) => {
                self.answer_wrongly(Fault::Flip, &key, request).await
            }
            None => front.serve(op, &key, request).await,
            Some(fault) => self.answer_at_fault(fault, op, &key, request).await,
        };
        pause(after).await;
        front.finish(response)
    }

    /// Answers a request that fails on order.
    async fn answer_at_fault(
        &self,
        fault: Fault,
        op: Op,
        key: &str,
        request: Request<Incoming>,
    ) -> Response<Body> {
        match fault {
            Fault::Absent => {
                let message = "The specified key does not exist.";
                refuse(request, S3ErrorCode::NoSuchKey, message).await
            }
            fault if fault.is_wrong_read() => self.answer_wrongly(fault, key, request).await,
            Fault::Error => refuse(request, S3ErrorCode::InternalError, "Failed on order.").await,
            Fault::Slow => {
                let message = "Please reduce your request rate.";
                refuse(request, S3ErrorCode::SlowDown, message).await
            }
            Fault::Conflict => {
                let message = "A conflicting conditional operation is in progress; try again.";
                refuse(request, S3ErrorCode::ConditionalRequestConflict, message).await
            }
            Fault::Stall => {
                tokio::time::sleep(MAX_STALL).await;
                self.reset().await
            }
            Fault::Reset => self.reset().await,
            // Only this case remains: the request is carried out and its answer is lost.
            _ => {
                self.front.serve(op, key, request).await;
                self.reset().await
            }
        }
    }

    /// Answers a read with wrong bytes.
    async fn answer_wrongly(
        &self,
        how: Fault,
        key: &str,
        request: Request<Incoming>,
    ) -> Response<Body> {
        if how == Fault::Spoil {
            self.spoiled.store(true, Ordering::Relaxed);
        }
        let front = &self.front;
        let response = front.serve(Op::Get, key, request).await;
        let random = {
            let mut rng = front
                .wrong_bytes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            rng.random()
        };
        let other = match how {
            Fault::Foreign => front.storage.neighbour(key).await,
            _ => None,
        };
        wrong_reads::falsify(response, how, random, other).await
    }

    /// Cuts the connection; the pending answer is never made.
    async fn reset(&self) -> Response<Body> {
        self.cut.cancel();
        std::future::pending().await
    }
}

/// Returns the operation and the key of a request.
fn classified(request: &Request<Incoming>) -> (Op, String) {
    let host = request
        .headers()
        .get(HOST)
        .and_then(|host| host.to_str().ok());
    let (op, key) = classify(
        request.method(),
        host,
        request.uri().path(),
        request.uri().query(),
    );
    (op, key.to_owned())
}

impl Front {
    /// Draws the time before the request is carried out and the time after it.
    fn draw_latency(&self, op: Op) -> (Duration, Duration) {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = self.latency.sample(op, &mut *rng);
        let before = whole.mul_f64(rng.random());
        (before, whole.saturating_sub(before))
    }

    async fn serve(&self, op: Op, key: &str, request: Request<Incoming>) -> Response<Body> {
        match self.s3.call(request.map(Body::from)).await {
            Ok(response) => {
                if op == Op::Put {
                    self.journal.note(key, response.status().as_u16());
                }
                response
            }
            Err(error) => {
                tracing::error!(?error, "a request could not be answered");
                error_response(
                    S3ErrorCode::InternalError,
                    "The server failed; see its log.",
                )
            }
        }
    }

    fn finish(&self, mut response: Response<Body>) -> Response<Body> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if let Ok(id) = HeaderValue::from_str(&format!("{number:016X}")) {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        let headers = response.headers();
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let bytes = response
            .body()
            .size_hint()
            .exact()
            .or(announced)
            .unwrap_or(0);
        self.counters.answer(response.status().as_u16(), bytes);
        response
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Answers with an error before the request is carried out. The body is read first: a client that
/// is sending it would otherwise see a reset instead of the answer.
async fn refuse(
    request: Request<Incoming>,
    code: S3ErrorCode,
    message: &'static str,
) -> Response<Body> {
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    error_response(code, message)
}

fn error_response(code: S3ErrorCode, message: &'static str) -> Response<Body> {
    S3Error::with_message(code, message)
        .to_http_response()
        .unwrap_or_else(|_| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
}
