//! A conditional create whose body is sent in two halves, for the probe: a store that checks the key when it has the
//! head, and writes when it has the body, overwrites an object created in between.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_LENGTH, HeaderValue};

use super::CloudStore;
use super::answer::Fault;
use crate::limits::{self, DATA_TIMEOUT};
use crate::{Create, Halves, Op, StoreError};

pub(super) async fn put(
    store: &CloudStore,
    key: &str,
    body: Bytes,
    halves: Halves,
) -> Result<Create, StoreError> {
    let answer = send(store, key, body, halves).await;
    let answer = answer.map_err(|fault| store.failed(Op::Create, key, &fault))?;
    store.created(Op::Create, key, &answer)
}

async fn send(
    store: &CloudStore,
    key: &str,
    body: Bytes,
    halves: Halves,
) -> Result<super::Answer, Fault> {
    // The time-out covers the other put, for which this one waits.
    let within = DATA_TIMEOUT + limits::transfer(body.len());
    let mut request = store.0.dialect.create(&store.full(key), body.clone());
    let length = HeaderValue::from(body.len());
    request.headers_mut().insert(CONTENT_LENGTH, length);
    let (head, body) = store.0.dialect.authorize(request).await?.into_parts();
    let request = http::Request::from_parts(head, in_halves(body, halves));
    let transport = &store.0.transport;
    let answer = transport.send(&transport.kept, request, within).await?;
    transport.collect(answer).await
}

fn in_halves(mut body: Bytes, halves: Halves) -> reqwest::Body {
    let second = body.split_off(body.len() / 2);
    let first = stream::iter([Ok::<_, Infallible>(body)]);
    let rest = stream::once(async move {
        // Without a receiver the rest follows immediately.
        let _ = halves.sent.send(());
        let _ = halves.go_on.await;
        Ok(second)
    });
    reqwest::Body::wrap_stream(stream::StreamExt::chain(first, rest))
}
