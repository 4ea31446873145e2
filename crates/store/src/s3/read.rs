//! The requests of reads through the SDK.

use std::ops::Range;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use futures::{StreamExt, stream};

use super::{S3Store, errors};
use crate::download::{Answer, Parts, Reads};
use crate::{Op, Store, StoreError, message};

#[async_trait]
impl Reads for S3Store {
    fn root(&self) -> &str {
        &self.0.root
    }

    async fn request(&self, key: &str, fresh: bool) -> Result<Answer, StoreError> {
        let client = if fresh { &self.0.fresh } else { &self.0.data };
        let sent = get(self, client, key).send().await;
        let answer = sent.map_err(|error| self.mapped(Op::Get, key, &error))?;
        Ok(begun(answer))
    }

    async fn request_range(
        &self,
        key: &str,
        range: &Range<u64>,
        etag: Option<String>,
    ) -> Result<Option<Answer>, StoreError> {
        let header = format!("bytes={}-{}", range.start, range.end - 1);
        let get = get(self, &self.0.data, key)
            .range(header)
            .set_if_match(etag);
        match get.send().await {
            Ok(answer) => Ok(Some(begun(answer))),
            Err(error) if errors::status(&error) == Some(416) => Ok(None),
            Err(error) => Err(self.mapped(Op::GetRange, key, &error)),
        }
    }

    async fn size(&self, key: &str) -> Result<u64, StoreError> {
        Ok(self.head(key).await?.size)
    }
}

fn get(
    store: &S3Store,
    client: &Client,
    key: &str,
) -> aws_sdk_s3::operation::get_object::builders::GetObjectFluentBuilder {
    let get = client.get_object().bucket(&store.0.bucket);
    get.key(store.full(key))
}

fn begun(answer: GetObjectOutput) -> Answer {
    let length = answer.content_length();
    Answer {
        length: length.and_then(|length| u64::try_from(length).ok()),
        content_range: answer.content_range,
        etag: answer.e_tag,
        parts: parts(answer.body),
    }
}

fn parts(body: ByteStream) -> Parts {
    let next = |mut body: ByteStream| async move {
        match body.next().await {
            Some(Ok(chunk)) => Ok(Some((chunk, body))),
            Some(Err(why)) => Err(message::chain(&why)),
            None => Ok(None),
        }
    };
    stream::try_unfold(body, next).boxed()
}
