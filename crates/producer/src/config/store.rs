//! `[store]`: where the stream is.

use batchweave_store::Encryption;
use serde::{Deserialize, Serialize};

/// `[store]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    /// Root of the stream.
    pub url: String,
    /// S3 endpoint; empty: AWS.
    pub endpoint: String,
    /// S3 region; empty: from the environment or profile.
    pub region: String,
    /// Encryption that writes ask for; empty: the bucket's default.
    pub encryption: String,
    /// KMS key of it; empty: the account's default.
    pub kms_key: String,
}

impl StoreConfig {
    /// What writes ask for.
    pub(crate) fn encryption(&self) -> Result<Encryption, String> {
        Encryption::parse(&self.encryption, &self.kms_key)
    }
}
