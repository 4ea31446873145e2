//! The table `[store]` of both daemons: the store of the stream.

use batchweave_store::{Encryption, OpenOptions, PathStyle, deserialize_root};
use serde::{Deserialize, Serialize};

use super::Problem;

/// The table `[store]` of a daemon's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    /// Root URL of the stream.
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
    /// Returns the problem of a configuration that names no store.
    pub fn without_url() -> Problem {
        let message = "must be given, as \"s3://bucket/prefix\" or \"file:///dir\"";
        Problem::new("store.url", message)
    }

    /// Returns the problems of this table, with keys below `store`.
    pub fn check(&self) -> Vec<Problem> {
        let url = self.url.is_empty().then(Self::without_url);
        let encryption = self.encryption().err();
        let encryption = encryption.map(|why| Problem::new("store.encryption", why));
        url.into_iter().chain(encryption).collect()
    }

    /// Returns how to open the store.
    pub fn options(&self) -> OpenOptions {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        OpenOptions {
            endpoint: given(&self.endpoint),
            region: given(&self.region),
            path_style: self.path_style,
            // An invalid value is refused when the configuration is checked.
            encryption: self.encryption().unwrap_or_default(),
            ..OpenOptions::default()
        }
    }

    fn encryption(&self) -> Result<Encryption, String> {
        Encryption::parse(&self.encryption, &self.kms_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_checked_and_becomes_options() {
        let keys = |table: &StoreConfig| {
            let problems = table.check().into_iter();
            problems.map(|problem| problem.key).collect::<Vec<_>>()
        };
        let mut table = StoreConfig {
            kms_key: "alias/a".into(),
            ..StoreConfig::default()
        };
        assert_eq!(keys(&table), ["store.url", "store.encryption"]);
        table = StoreConfig {
            url: "s3://bucket/x".into(),
            endpoint: "http://localhost:1".into(),
            encryption: "AES256".into(),
            ..StoreConfig::default()
        };
        assert!(keys(&table).is_empty());
        let options = table.options();
        assert_eq!(options.endpoint.as_deref(), Some("http://localhost:1"));
        assert_eq!(options.region, None);
        assert_ne!(options.encryption, Encryption::default());
    }
}
