//! Properties of an S3 bucket: permissions, rules, clock, checksums, multipart uploads.

mod lifecycle;

use std::time::SystemTime;

use async_trait::async_trait;
use aws_sdk_s3::primitives::{ByteStream, DateTime, DateTimeFormat};
use aws_sdk_s3::types::{BucketVersioningStatus, CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;

use super::{S3Store, clean, errors, late, upload};
use crate::{
    Bucket, Create, Effect, ErrorKind, Halves, Inspect, LifecycleRule, Op, PendingUpload, Store,
    StoreError, Versioning,
};

/// A CRC32C that does not match the body.
const WRONG_CRC32C: &str = "AAAAAA==";
/// An MD5 digest that matches no known body.
const WRONG_MD5: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

#[async_trait]
impl Inspect for S3Store {
    /// Sends a request like `create`, with a wrong digest of the body: with the permission, the answer is
    /// that the body is damaged, and no object is created.
    async fn may_create(&self, key: &str) -> Result<(), StoreError> {
        let put = self.0.commit.put_object().bucket(&self.0.bucket);
        let sent = put
            .key(self.full(key))
            .if_none_match("*")
            .set_server_side_encryption(self.0.encryption.mode().map(Into::into))
            .set_ssekms_key_id(self.0.encryption.kms_key())
            .content_md5(WRONG_MD5)
            .body(ByteStream::from_static(b"a body with another digest"))
            .send()
            .await;
        match sent {
            Ok(_) => {
                let _ = self.delete(key).await;
                let detail = "the store accepts a body that does not match its Content-MD5";
                Err(self.error(Op::Create, key, ErrorKind::Contract, Effect::DidNot, detail))
            }
            Err(error) if matches!(errors::status(&error), Some(400 | 412)) => Ok(()),
            Err(error) => Err(self.mapped(Op::Create, key, &error)),
        }
    }

    async fn tidy(&self, prefix: &str) -> Result<(), StoreError> {
        for upload in clean::unfinished(self, prefix).await? {
            self.abort_upload(&upload).await?;
        }
        Ok(())
    }

    async fn put_in_halves(
        &self,
        key: &str,
        body: Bytes,
        halves: Halves,
    ) -> Option<Result<Create, StoreError>> {
        Some(late::put(self, key, body, halves).await)
    }

    fn bucket(&self) -> Option<&dyn Bucket> {
        Some(self)
    }
}

impl S3Store {
    async fn begin(&self, key: &str) -> Result<String, StoreError> {
        let begin = self.0.data.create_multipart_upload();
        let begun = begin
            .bucket(&self.0.bucket)
            .key(self.full(key))
            .send()
            .await
            .map_err(|error| self.mapped(Op::Upload, key, &error))?;
        begun.upload_id.ok_or_else(|| {
            let detail = "the answer to CreateMultipartUpload has no upload id";
            self.error(Op::Upload, key, ErrorKind::Contract, Effect::DidNot, detail)
        })
    }
}

#[async_trait]
impl Bucket for S3Store {
    fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    fn parts_above(&self) -> u64 {
        upload::MULTIPART_ABOVE_BYTES as u64
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        let get = self.0.data.get_bucket_versioning().bucket(&self.0.bucket);
        let answer = get
            .send()
            .await
            .map_err(|error| self.mapped(Op::Head, "?versioning", &error))?;
        Ok(match answer.status() {
            Some(BucketVersioningStatus::Enabled) => Versioning::On,
            Some(BucketVersioningStatus::Suspended) => Versioning::Suspended,
            _ => Versioning::Off,
        })
    }

    async fn lifecycle(&self) -> Result<Option<Vec<LifecycleRule>>, StoreError> {
        let get = self.0.data.get_bucket_lifecycle_configuration();
        match get.bucket(&self.0.bucket).send().await {
            Ok(answer) => {
                let rules = answer.rules().iter();
                let below = rules.filter_map(|rule| lifecycle::below(rule, &self.0.prefix));
                Ok(Some(below.collect()))
            }
            Err(error) => match self.mapped(Op::Head, "?lifecycle", &error) {
                // A bucket without rules answers 404.
                none if none.is_not_found() => Ok(Some(Vec::new())),
                error => Err(error),
            },
        }
    }

    async fn time(&self, key: &str) -> Result<SystemTime, StoreError> {
        let get = self.0.data.get_object().bucket(&self.0.bucket);
        let Err(error) = get.key(self.full(key)).send().await else {
            let detail = "there is an object under a key that is never written";
            return Err(self.error(Op::Get, key, ErrorKind::Contract, Effect::DidNot, detail));
        };
        let date = error
            .raw_response()
            .and_then(|raw| raw.headers().get("date"))
            .and_then(|text| DateTime::from_str(text, DateTimeFormat::HttpDate).ok());
        match date.and_then(|date| SystemTime::try_from(date).ok()) {
            Some(time) => Ok(time),
            None if errors::status(&error) == Some(404) => {
                let detail = "the answer has no Date header";
                Err(self.error(Op::Get, key, ErrorKind::Other, Effect::DidNot, detail))
            }
            None => Err(self.mapped(Op::Get, key, &error)),
        }
    }

    async fn refuses_wrong_checksum(&self, key: &str) -> Result<bool, StoreError> {
        let put = self.0.data.put_object().bucket(&self.0.bucket);
        let sent = put
            .key(self.full(key))
            .if_none_match("*")
            .checksum_crc32_c(WRONG_CRC32C)
            .body(ByteStream::from_static(b"a body with another checksum"))
            .send()
            .await;
        match sent {
            Ok(_) => Ok(false),
            Err(error) if errors::status(&error) == Some(400) => Ok(true),
            Err(error) => Err(self.mapped(Op::Upload, key, &error)),
        }
    }

    async fn begin_upload(&self, key: &str, body: Bytes) -> Result<PendingUpload, StoreError> {
        let id = self.begin(key).await?;
        let pending = PendingUpload {
            key: key.to_owned(),
            id,
            ..PendingUpload::default()
        };
        match upload::part(self, key, &pending.id, 1, body).await {
            Ok(part) => Ok(PendingUpload {
                e_tag: part.e_tag,
                crc32: part.checksum_crc32,
                ..pending
            }),
            Err(error) => {
                let _ = self.abort_upload(&pending).await;
                Err(error)
            }
        }
    }

    async fn complete_upload(&self, upload: &PendingUpload) -> Result<Create, StoreError> {
        let part = CompletedPart::builder()
            .part_number(1)
            .set_e_tag(upload.e_tag.clone())
            .set_checksum_crc32(upload.crc32.clone())
            .build();
        let list = CompletedMultipartUpload::builder().parts(part).build();
        let end = self.0.commit.complete_multipart_upload();
        let sent = end
            .bucket(&self.0.bucket)
            .key(self.full(&upload.key))
            .upload_id(&upload.id)
            .multipart_upload(list)
            .if_none_match("*")
            .send()
            .await;
        match sent {
            Ok(_) => Ok(Create::Created),
            Err(error) if errors::status(&error) == Some(412) => Ok(Create::Exists),
            Err(error) => Err(self.mapped(Op::Upload, &upload.key, &error)),
        }
    }

    async fn abort_upload(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        let abort = self.0.data.abort_multipart_upload();
        let sent = abort
            .bucket(&self.0.bucket)
            .key(self.full(&upload.key))
            .upload_id(&upload.id)
            .send()
            .await;
        match sent.map_err(|error| self.mapped(Op::Delete, &upload.key, &error)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
