//! Presigned URLs: reads by a client without credentials.

use std::time::Duration;

use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};

use super::S3Store;
use crate::{Effect, ErrorKind, Op, StoreError, key};

impl S3Store {
    /// Returns a URL with which anybody may read `key`, whole or in ranges, for the time `valid`.
    pub async fn presigned_get(&self, key: &str, valid: Duration) -> Result<String, StoreError> {
        key::check(Op::Get, &self.0.root, key)?;
        let signed = self.presigned(Op::Get, key, valid).await?;
        Ok(signed.uri().to_owned())
    }

    pub(super) async fn presigned(
        &self,
        op: Op,
        key: &str,
        valid: Duration,
    ) -> Result<PresignedRequest, StoreError> {
        let invalid =
            |detail: String| self.error(op, key, ErrorKind::Invalid, Effect::DidNot, detail);
        let config = PresigningConfig::expires_in(valid).map_err(|why| invalid(why.to_string()))?;
        let get = self.0.data.get_object().bucket(&self.0.bucket);
        let signed = get
            .key(self.full(key))
            .presigned(config)
            .await
            .map_err(|error| self.mapped(op, key, &error))?;
        crate::secrets::note_url(signed.uri());
        Ok(signed)
    }
}
