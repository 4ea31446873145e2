//! Operations on single objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use s3s::dto::{
    ChecksumMode, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    MetadataDirective, PutObjectInput, PutObjectOutput,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Api;
use crate::checksum::Checksums;
use crate::storage::{Condition, Headers, Object, now_ms, read};

/// The conditions `If-Match` and `If-None-Match` of a read.
fn check_read(
    object: &Object,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    if if_match.is_some_and(|wanted| !object.matches(wanted)) {
        return Err(s3_error!(PreconditionFailed, "The object has another ETag"));
    }
    if if_none_match.is_some_and(|wanted| object.matches(wanted)) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

/// Returns the object's checksums if the client asked for them.
fn checksums_to_send(headers: &Headers, mode: Option<&ChecksumMode>) -> Checksums {
    match mode.map(ChecksumMode::as_str) {
        Some(ChecksumMode::ENABLED) => headers.checksums.clone(),
        _ => Checksums::default(),
    }
}

fn metadata(headers: &Headers) -> Option<s3s::dto::Metadata> {
    (!headers.metadata.is_empty()).then(|| headers.metadata.clone().into_iter().collect())
}

/// Formats the header `Content-Range` of an answer with these bytes of an object.
fn content_range(bytes: &std::ops::Range<u64>, size: u64) -> String {
    let last = bytes.end.saturating_sub(1);
    format!("bytes {}-{last}/{size}", bytes.start)
}

impl Api {
    fn find(&self, bucket: &str, key: &str) -> S3Result<Arc<Object>> {
        self.storage.bucket(bucket)?.get(key)
    }

    pub(super) async fn answer_get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<GetObjectOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let mut object = bucket.get(&input.key)?;
        check_read(
            &object,
            input.if_match.as_ref(),
            input.if_none_match.as_ref(),
        )?;
        let range = |object: &Object| match &input.range {
            Some(range) => range.check(object.headers.size),
            None => Ok(0..object.headers.size),
        };
        let mut bytes = range(&object)?;
        let body = if let Ok(body) = read(&object, bytes.clone()).await {
            body
        } else {
            // The object was replaced since it was found, which removed its file.
            object = bucket.get(&input.key)?;
            bytes = range(&object)?;
            read(&object, bytes.clone()).await?
        };
        let headers = &object.headers;
        let whole = input.range.is_none();
        let sums = checksums_to_send(headers, input.checksum_mode.filter(|_| whole).as_ref());
        let content_range = input.range.map(|_| content_range(&bytes, headers.size));
        Ok(describing!(GetObjectOutput, headers, sums, {
            body: Some(body),
            content_length: Some((bytes.end - bytes.start) as i64),
            content_range: content_range,
        }))
    }

    pub(super) fn answer_head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<HeadObjectOutput> {
        let input = request.input;
        let object = self.find(&input.bucket, &input.key)?;
        check_read(
            &object,
            input.if_match.as_ref(),
            input.if_none_match.as_ref(),
        )?;
        let headers = &object.headers;
        let sums = checksums_to_send(headers, input.checksum_mode.as_ref());
        Ok(describing!(HeadObjectOutput, headers, sums, {
            content_length: Some(headers.size as i64),
        }))
    }

    pub(super) async fn answer_put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<PutObjectOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let mut condition = write_condition!(input);
        if self.checks_early {
            bucket.check_early(&input.key, &condition)?;
            condition = Condition::default();
        }
        let received = self
            .receive(
                input.body,
                input.content_length,
                sent_checksums!(input),
                input.content_md5,
                request.trailing_headers,
            )
            .await?;
        let headers = Headers {
            etag: received.etag,
            size: received.body.len() as u64,
            checksums: received.checksums,
            ..kept_headers!(input)
        };
        let object = bucket
            .put(&input.key, headers, received.body, condition)
            .await?;
        let sums = object.headers.checksums.clone();
        Ok(with_checksums!(PutObjectOutput, sums, {
            e_tag: Some(object.headers.etag()),
        }))
    }

    pub(super) async fn answer_copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<CopyObjectOutput> {
        let input = request.input;
        let CopySource::Bucket { bucket, key, .. } = &input.copy_source else {
            return Err(s3_error!(
                NotImplemented,
                "Copying from access points is not supported."
            ));
        };
        let source = self.find(bucket, key)?;
        let target = self.storage.bucket(&input.bucket)?;
        let blob = read(&source, 0..source.headers.size).await?;
        let size = Some(source.headers.size as i64);
        let received = self
            .receive(Some(blob), size, Checksums::default(), None, None)
            .await?;
        let mut headers = Headers {
            modified_ms: now_ms(),
            etag: received.etag,
            ..source.headers.clone()
        };
        if input
            .metadata_directive
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE)
        {
            headers.metadata = input
                .metadata
                .into_iter()
                .flatten()
                .collect::<BTreeMap<_, _>>();
            headers.content_type = input.content_type;
        }
        let object = target
            .put(&input.key, headers, received.body, Condition::default())
            .await?;
        let result = CopyObjectResult {
            e_tag: Some(object.headers.etag()),
            last_modified: Some(object.headers.modified()),
            ..CopyObjectResult::default()
        };
        Ok(CopyObjectOutput {
            copy_object_result: Some(result),
            ..CopyObjectOutput::default()
        })
    }

    pub(super) fn answer_delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<DeleteObjectOutput> {
        self.storage
            .bucket(&request.input.bucket)?
            .delete(&request.input.key)?;
        Ok(DeleteObjectOutput::default())
    }

    pub(super) fn answer_delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<DeleteObjectsOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            bucket.delete(&object.key)?;
            deleted.push(DeletedObject {
                key: Some(object.key),
                ..DeletedObject::default()
            });
        }
        let quiet = input.delete.quiet.unwrap_or(false);
        Ok(DeleteObjectsOutput {
            deleted: (!quiet).then_some(deleted),
            ..DeleteObjectsOutput::default()
        })
    }
}
