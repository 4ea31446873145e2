//! A conditional put whose body is sent in two halves, for the probe: a store that checks the key when it
//! has the head, and writes when it has the body, overwrites an object created in between.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use super::{S3Store, config, errors};
use crate::{Create, Halves, Op, StoreError};

pub(super) async fn put(
    store: &S3Store,
    key: &str,
    body: Bytes,
    halves: Halves,
) -> Result<Create, StoreError> {
    let size = body.len();
    let put = store.0.commit.put_object().bucket(&store.0.bucket);
    let put = put
        .key(store.full(key))
        .if_none_match("*")
        .set_server_side_encryption(store.0.encryption.mode().map(Into::into))
        .set_ssekms_key_id(store.0.encryption.kms_key())
        .body(ByteStream::new(SdkBody::from_body_1_x(Late::new(
            body, halves,
        ))))
        .customize()
        // The time-out covers the other put, for which this one waits.
        .config_override(config::for_body(size));
    match put.disable_payload_signing().send().await {
        Ok(_) => Ok(Create::Created),
        Err(error) if errors::status(&error) == Some(412) => Ok(Create::Exists),
        Err(error) => Err(store.mapped(Op::Create, key, &error)),
    }
}

struct Late {
    first: Option<Bytes>,
    second: Option<Bytes>,
    sent: Option<oneshot::Sender<()>>,
    go_on: oneshot::Receiver<()>,
}

impl Late {
    fn new(mut body: Bytes, halves: Halves) -> Self {
        let second = body.split_off(body.len() / 2);
        Self {
            first: Some(body),
            second: Some(second),
            sent: Some(halves.sent),
            go_on: halves.go_on,
        }
    }
}

impl Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some(sent) = self.sent.take() {
            // Without a receiver the rest follows immediately.
            let _ = sent.send(());
        }
        if self.second.is_some() && Pin::new(&mut self.go_on).poll(context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.second.take().map(|second| Ok(Frame::data(second))))
    }

    fn size_hint(&self) -> SizeHint {
        let left = |half: &Option<Bytes>| half.as_ref().map_or(0, |half| half.len() as u64);
        SizeHint::with_exact(left(&self.first) + left(&self.second))
    }
}
