//! Operations on buckets.

use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput,
    DeleteBucketOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, GetBucketLocationInput, GetBucketLocationOutput,
    GetBucketVersioningInput, GetBucketVersioningOutput, HeadBucketInput, HeadBucketOutput,
    ListBucketsInput, ListBucketsOutput, Owner,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Api;

/// The region that the server reports.
pub(crate) const REGION: &str = "us-east-1";

impl Api {
    #[allow(clippy::unnecessary_wraps)] // one shape for all operations
    pub(super) fn answer_list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<ListBucketsOutput> {
        let prefix = request.input.prefix;
        let buckets = self
            .storage
            .bucket_names()
            .into_iter()
            .filter(|(name, _)| {
                prefix
                    .as_ref()
                    .is_none_or(|prefix| name.starts_with(prefix.as_str()))
            })
            .map(|(name, created)| Bucket {
                name: Some(name),
                creation_date: Some(created.into()),
                bucket_region: None,
            })
            .collect();
        let owner = Owner {
            display_name: Some("dev".to_owned()),
            id: Some("dev".to_owned()),
        };
        Ok(ListBucketsOutput {
            buckets: Some(buckets),
            owner: Some(owner),
            prefix,
            ..ListBucketsOutput::default()
        })
    }

    pub(super) fn answer_create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<CreateBucketOutput> {
        let name = request.input.bucket;
        match self.storage.create_bucket(&name) {
            Ok(true) => Ok(CreateBucketOutput {
                location: Some(format!("/{name}")),
            }),
            Ok(false) => Err(s3_error!(
                BucketAlreadyOwnedByYou,
                "You have this bucket already: {name}"
            )),
            Err(error) => Err(s3_error!(error, InternalError)),
        }
    }

    pub(super) fn answer_head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<HeadBucketOutput> {
        self.storage.bucket(&request.input.bucket)?;
        Ok(HeadBucketOutput {
            bucket_region: Some(REGION.to_owned()),
            ..HeadBucketOutput::default()
        })
    }

    pub(super) fn answer_delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<DeleteBucketOutput> {
        self.storage.delete_bucket(&request.input.bucket)?;
        Ok(DeleteBucketOutput::default())
    }

    /// Returns the location constraint; S3 names us-east-1 by an empty one.
    pub(super) fn answer_get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<GetBucketLocationOutput> {
        self.storage.bucket(&request.input.bucket)?;
        let location_constraint = Some(BucketLocationConstraint::from(String::new()));
        Ok(GetBucketLocationOutput {
            location_constraint,
        })
    }

    /// Answers that a bucket never had versions, which this server does not keep.
    pub(super) fn answer_get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<GetBucketVersioningOutput> {
        self.storage.bucket(&request.input.bucket)?;
        Ok(GetBucketVersioningOutput::default())
    }

    /// Answers that no rules exist, which S3 reports as an error.
    pub(super) fn answer_get_bucket_lifecycle(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<GetBucketLifecycleConfigurationOutput> {
        self.storage.bucket(&request.input.bucket)?;
        Err(s3_error!(
            NoSuchLifecycleConfiguration,
            "The bucket has no lifecycle rules."
        ))
    }
}
