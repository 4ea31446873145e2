//! The S3 operations, answered from the storage.
#![allow(clippy::cast_possible_wrap)] // S3 sends sizes and counts as signed numbers

#[macro_use]
mod shared;

mod buckets;
mod listing;
mod multipart;
mod objects;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput,
    CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteBucketInput,
    DeleteBucketOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
    DeleteObjectsOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, GetBucketLocationInput, GetBucketLocationOutput,
    GetBucketVersioningInput, GetBucketVersioningOutput, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput,
    ListBucketsOutput, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectsInput,
    ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, ListPartsInput, ListPartsOutput,
    PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result, TrailingHeaders, s3_error};

use crate::checksum::{Checksums, etag};
use crate::storage::{Order, Storage};
pub(crate) use buckets::REGION;

/// Bodies below this size are hashed on the connection's thread.
const INLINE_BYTES: usize = 64 * 1024;

/// The S3 operations on one storage.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub storage: Arc<Storage>,
    pub order: Order,
    pub max_body_bytes: usize,
    /// Decides the condition of a put before its body arrives.
    pub checks_early: bool,
}

/// A complete body that passed its checks.
struct Received {
    body: Bytes,
    etag: String,
    checksums: Checksums,
}

impl Api {
    /// Reads a body within the limit and compares it with the client's checksums.
    async fn receive(
        &self,
        stream: Option<StreamingBlob>,
        length: Option<i64>,
        mut checksums: Checksums,
        content_md5: Option<String>,
        trailers: Option<TrailingHeaders>,
    ) -> S3Result<Received> {
        let limit = self.max_body_bytes;
        let too_large = || {
            s3_error!(
                EntityTooLarge,
                "This server takes bodies of at most {limit} bytes."
            )
        };
        let announced = usize::try_from(length.unwrap_or(0)).unwrap_or(0);
        if announced > limit {
            return Err(too_large());
        }
        let mut body = BytesMut::with_capacity(announced);
        if let Some(mut stream) = stream {
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(|error| {
                    let reason = error.to_string();
                    let mut error = if reason.contains("Mismatch") && !reason.contains("Length") {
                        s3_error!(BadDigest, "The body does not match its signature or x-amz-content-sha256: {reason}")
                    } else {
                        s3_error!(IncompleteBody, "The body ended early: {reason}")
                    };
                    error.set_status_code(hyper::StatusCode::BAD_REQUEST);
                    error
                })?;
                if body.len() + chunk.len() > limit {
                    return Err(too_large());
                }
                body.extend_from_slice(&chunk);
            }
        }
        if let Some(trailers) = trailers.and_then(|trailers| trailers.take()) {
            checksums.merge_trailers(&trailers);
        }
        // Hashing a large body takes tens of milliseconds, too long for a thread that serves
        // connections.
        let check = move || {
            checksums.verify(&body)?;
            Ok(Received {
                etag: etag(&body, content_md5.as_deref())?,
                body: body.freeze(),
                checksums,
            })
        };
        if announced < INLINE_BYTES {
            return check();
        }
        tokio::task::spawn_blocking(check)
            .await
            .map_err(|error| s3_error!(error, InternalError))?
    }
}

/// Forwards each operation of the `S3` trait to the method of `Api` that answers it, immediately or
/// after moving bytes.
macro_rules! operations {
    (
        at_once { $($name:ident => $answer:ident: $input:ty => $output:ty;)* }
        moving_bytes { $($name2:ident => $answer2:ident: $input2:ty => $output2:ty;)* }
    ) => {
        #[async_trait::async_trait]
        impl S3 for Api {
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                self.$answer(request).map(S3Response::new)
            })*
            $(async fn $name2(&self, request: S3Request<$input2>) -> S3Result<S3Response<$output2>> {
                self.$answer2(request).await.map(S3Response::new)
            })*
        }
    };
}

operations! {
    at_once {
        list_buckets => answer_list_buckets: ListBucketsInput => ListBucketsOutput;
        create_bucket => answer_create_bucket: CreateBucketInput => CreateBucketOutput;
        head_bucket => answer_head_bucket: HeadBucketInput => HeadBucketOutput;
        delete_bucket => answer_delete_bucket: DeleteBucketInput => DeleteBucketOutput;
        get_bucket_location => answer_get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput;
        get_bucket_versioning => answer_get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput;
        get_bucket_lifecycle_configuration => answer_get_bucket_lifecycle: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput;
        head_object => answer_head_object: HeadObjectInput => HeadObjectOutput;
        delete_object => answer_delete_object: DeleteObjectInput => DeleteObjectOutput;
        delete_objects => answer_delete_objects: DeleteObjectsInput => DeleteObjectsOutput;
        list_objects => answer_list_objects: ListObjectsInput => ListObjectsOutput;
        list_objects_v2 => answer_list_objects_v2: ListObjectsV2Input => ListObjectsV2Output;
        create_multipart_upload => answer_create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput;
        abort_multipart_upload => answer_abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput;
        list_parts => answer_list_parts: ListPartsInput => ListPartsOutput;
        list_multipart_uploads => answer_list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput;
    }
    moving_bytes {
        get_object => answer_get_object: GetObjectInput => GetObjectOutput;
        put_object => answer_put_object: PutObjectInput => PutObjectOutput;
        copy_object => answer_copy_object: CopyObjectInput => CopyObjectOutput;
        upload_part => answer_upload_part: UploadPartInput => UploadPartOutput;
        complete_multipart_upload => answer_complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput;
    }
}
