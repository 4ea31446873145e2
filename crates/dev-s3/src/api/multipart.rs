//! Multipart uploads.

use std::sync::atomic::{AtomicU64, Ordering};

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumType,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETag, ListMultipartUploadsInput, ListMultipartUploadsOutput,
    ListPartsInput, ListPartsOutput, MultipartUpload, Part as PartInfo, Timestamp, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3Error, S3Request, S3Result, s3_error};

use super::Api;
use crate::storage::{Bucket, Headers, Part, Upload, now_ms};

const MAX_PART_NUMBER: i32 = 10_000;

fn no_such_upload(id: &str) -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The upload was completed, aborted or never begun: {id}"
    )
}

/// Runs `act` on the upload `id` of `key`.
fn with_upload<T>(
    bucket: &Bucket,
    id: &str,
    key: &str,
    act: impl FnOnce(&mut Upload) -> S3Result<T>,
) -> S3Result<T> {
    bucket.uploads(
        |uploads| match uploads.get_mut(id).filter(|upload| upload.key == key) {
            Some(upload) => act(upload),
            None => Err(no_such_upload(id)),
        },
    )
}

fn timestamp(ms: u64) -> Timestamp {
    Headers {
        modified_ms: ms,
        ..Headers::default()
    }
    .modified()
}

impl Api {
    pub(super) fn answer_create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<CreateMultipartUploadOutput> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let whole = |kind: &ChecksumType| kind.as_str() == ChecksumType::FULL_OBJECT;
        let full_checksum = input
            .checksum_algorithm
            .as_ref()
            .filter(|_| input.checksum_type.as_ref().is_some_and(whole));
        let upload = Upload {
            key: input.key.clone(),
            headers: kept_headers!(input),
            full_checksum: full_checksum.map(|algorithm| algorithm.as_str().to_owned()),
            parts: std::collections::BTreeMap::new(),
        };
        // Unique over restarts too, so that a client's old upload never matches a new one.
        let id = format!(
            "{:012x}-{:08x}",
            now_ms(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        bucket.uploads(|uploads| uploads.insert(id.clone(), upload));
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..CreateMultipartUploadOutput::default()
        })
    }

    pub(super) async fn answer_upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<UploadPartOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        with_upload(&bucket, &input.upload_id, &input.key, |_| Ok(()))?;
        if !(1..=MAX_PART_NUMBER).contains(&input.part_number) {
            return Err(s3_error!(
                InvalidArgument,
                "Part numbers go from 1 to {MAX_PART_NUMBER}."
            ));
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
        let sums = received.checksums.clone();
        let part = Part {
            body: received.body,
            etag: received.etag.clone(),
            modified_ms: now_ms(),
            checksums: received.checksums,
        };
        let limit = self.max_body_bytes;
        with_upload(&bucket, &input.upload_id, &input.key, |upload| {
            if upload.size_without(input.part_number) + part.body.len() > limit {
                return Err(s3_error!(
                    EntityTooLarge,
                    "This server takes objects of at most {limit} bytes."
                ));
            }
            upload.parts.insert(input.part_number, part);
            Ok(())
        })?;
        Ok(with_checksums!(UploadPartOutput, sums, {
            e_tag: Some(ETag::Strong(received.etag)),
        }))
    }

    /// Completes an upload. It ends only when the object exists: a failed condition leaves it
    /// unchanged.
    pub(super) async fn answer_complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let chosen: Vec<_> = input
            .multipart_upload
            .and_then(|chosen| chosen.parts)
            .unwrap_or_default()
            .into_iter()
            .map(|part| {
                (
                    part.part_number.unwrap_or(0),
                    part.e_tag.map(ETag::into_value),
                )
            })
            .collect();
        let upload = with_upload(&bucket, &input.upload_id, &input.key, |upload| {
            Ok(upload.clone())
        })?;
        let (headers, body) = upload.assemble(&chosen)?;
        let object = bucket
            .put(&input.key, headers, body, write_condition!(input))
            .await?;
        bucket.uploads(|uploads| uploads.remove(&input.upload_id));
        let sums = object.headers.checksums.clone();
        Ok(with_checksums!(CompleteMultipartUploadOutput, sums, {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(object.headers.etag()),
        }))
    }

    pub(super) fn answer_abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<AbortMultipartUploadOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        with_upload(&bucket, &input.upload_id, &input.key, |_| Ok(()))?;
        bucket.uploads(|uploads| uploads.remove(&input.upload_id));
        Ok(AbortMultipartUploadOutput::default())
    }

    pub(super) fn answer_list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<ListPartsOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let after = input.part_number_marker.unwrap_or(0).max(0);
        let limit = usize::try_from(input.max_parts.unwrap_or(1000))
            .unwrap_or(0)
            .clamp(1, 1000);
        let (parts, truncated) = with_upload(&bucket, &input.upload_id, &input.key, |upload| {
            let info = |(number, part): (&i32, &Part)| PartInfo {
                part_number: Some(*number),
                size: Some(part.body.len() as i64),
                e_tag: Some(ETag::Strong(part.etag.clone())),
                last_modified: Some(timestamp(part.modified_ms)),
                checksum_crc32: part.checksums.crc32.clone(),
                checksum_crc32c: part.checksums.crc32c.clone(),
                ..PartInfo::default()
            };
            let rest = upload.parts.range(after.saturating_add(1)..);
            let parts: Vec<_> = rest.clone().take(limit).map(info).collect();
            Ok((parts, rest.count() > limit))
        })?;
        let last = parts.last().and_then(|part| part.part_number);
        Ok(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            is_truncated: Some(truncated),
            next_part_number_marker: last.filter(|_| truncated),
            max_parts: Some(limit as i32),
            parts: Some(parts),
            ..ListPartsOutput::default()
        })
    }

    /// Lists all uploads in one page, as a development server has few.
    pub(super) fn answer_list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<ListMultipartUploadsOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let mut uploads: Vec<_> = bucket.uploads(|uploads| {
            let wanted = uploads
                .iter()
                .filter(|(_, upload)| upload.key.starts_with(&prefix));
            let info = |(id, upload): (&String, &Upload)| MultipartUpload {
                upload_id: Some(id.clone()),
                key: Some(upload.key.clone()),
                initiated: Some(timestamp(upload.headers.modified_ms)),
                ..MultipartUpload::default()
            };
            wanted.map(info).collect()
        });
        uploads.sort_by(|a, b| (&a.key, &a.upload_id).cmp(&(&b.key, &b.upload_id)));
        Ok(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: input.prefix,
            is_truncated: Some(false),
            uploads: Some(uploads),
            ..ListMultipartUploadsOutput::default()
        })
    }
}
