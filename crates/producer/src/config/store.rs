//! The table `[store]`: the store of the stream.

use batchweave_store::Encryption;
use serde::{Deserialize, Serialize};

/// The table `[store]` of the configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    pub url: String,
    /// S3 endpoint; empty for AWS.
    pub endpoint: String,
    /// S3 region; empty takes that of the environment or profile.
    pub region: String,
    /// Encryption of written objects; empty for the bucket's default.
    pub encryption: String,
    /// KMS key of the encryption; empty for the account's default.
    pub kms_key: String,
}

impl StoreConfig {
    /// Returns the encryption of written objects, or the reason why the keys are invalid.
    pub(crate) fn encryption(&self) -> Result<Encryption, String> {
        Encryption::parse(&self.encryption, &self.kms_key)
    }
}
