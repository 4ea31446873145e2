//! The table `[store]`: the store of the stream.

use batchweave_store::{Encryption, OpenOptions, PathStyle, deserialize_root};
use serde::{Deserialize, Serialize};

use super::non_empty;

/// The table `[store]` of the configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    #[serde(deserialize_with = "deserialize_root")]
    pub url: String,
    /// S3 endpoint; empty for AWS.
    pub endpoint: String,
    /// S3 region; empty takes that of the environment or profile.
    pub region: String,
    /// Whether requests name the bucket in the path or in the host.
    pub path_style: PathStyle,
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

    /// Returns how to open the store; `create` also creates the folder of a `file://` root.
    pub(crate) fn options(&self, create: bool) -> OpenOptions {
        OpenOptions {
            create,
            endpoint: non_empty(&self.endpoint),
            region: non_empty(&self.region),
            path_style: self.path_style,
            // Checked with the rest of the configuration.
            encryption: self.encryption().unwrap_or_default(),
            ..OpenOptions::default()
        }
    }
}
