//! Signed URLs: reads by a client that has no keys.

use std::time::Duration;

use aws_sdk_s3::presigning::PresigningConfig;

use super::S3Store;
use crate::{Effect, ErrorKind, Op, StoreError, key};

impl S3Store {
    /// A URL under which anybody may read `key`, whole or in ranges, for so long.
    pub async fn presigned_get(&self, key: &str, valid: Duration) -> Result<String, StoreError> {
        key::check(Op::Get, &self.0.root, key)?;
        let invalid =
            |detail: String| self.error(Op::Get, key, ErrorKind::Invalid, Effect::DidNot, detail);
        let config = PresigningConfig::expires_in(valid).map_err(|why| invalid(why.to_string()))?;
        let get = self.0.data.get_object().bucket(&self.0.bucket);
        let signed = get.key(self.full(key)).presigned(config).await;
        let signed = signed.map_err(|error| self.mapped(Op::Get, key, &error))?;
        Ok(signed.uri().to_owned())
    }
}
