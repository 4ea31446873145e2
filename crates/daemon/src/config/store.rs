//! The table `[store]` of both daemons: the store of the stream.

use batchweave_store::{
    AzureOptions, Encryption, GcsOptions, Location, OpenOptions, PathStyle, deserialize_root,
};
use serde::{Deserialize, Serialize};

use super::Problem;

/// The table `[store]` of a daemon's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    /// Root URL of the stream.
    #[serde(deserialize_with = "deserialize_root")]
    pub url: String,
    /// Endpoint of the store; empty for that of the cloud's variables, or the cloud's own.
    pub endpoint: String,
    /// S3 region; empty takes that of the environment or profile.
    pub region: String,
    /// Whether requests name the bucket in the path or in the host.
    pub path_style: PathStyle,
    /// Encryption of objects written to S3; empty for the bucket's default.
    pub encryption: String,
    /// KMS key of the encryption; empty for the account's default.
    pub kms_key: String,
    /// Settings that only `gs://` has.
    pub gcs: GcsConfig,
    /// Settings that only `az://` and `abfss://` have.
    pub azure: AzureConfig,
}

/// The table `[store.gcs]`: Google Cloud Storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GcsConfig {
    /// File with credentials; empty for the application default credentials.
    pub credentials: String,
}

/// The table `[store.azure]`: Azure Blob Storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AzureConfig {
    /// Storage account of `az://` URLs; empty for that of the environment.
    pub account: String,
    /// Client id of the managed identity; empty for the only one, or that of the environment.
    pub client_id: String,
}

impl StoreConfig {
    /// Returns the problem of a configuration that names no store.
    pub fn without_url() -> Problem {
        let message = "must be given, as \"s3://bucket/prefix\", \"gs://bucket/prefix\", \"az://container/prefix\" or \
                       \"file:///dir\"";
        Problem::new("store.url", message)
    }

    /// Returns the problems of this table, with keys below `store`.
    pub fn check(&self) -> Vec<Problem> {
        let url = self.url.is_empty().then(Self::without_url);
        let encryption = self.encryption().err();
        let encryption = encryption.map(|why| Problem::new("store.encryption", why));
        let of_s3 = self.only_for_s3();
        url.into_iter().chain(encryption).chain(of_s3).collect()
    }

    /// Returns the problems of settings of S3 for another store, which would be ignored.
    fn only_for_s3(&self) -> Vec<Problem> {
        let elsewhere = Location::parse(&self.url).is_ok_and(|location| {
            matches!(location, Location::Gcs { .. } | Location::Azure { .. })
        });
        let given = [
            ("store.region", !self.region.is_empty()),
            ("store.path_style", self.path_style != PathStyle::Auto),
            ("store.encryption", !self.encryption.is_empty()),
            ("store.kms_key", !self.kms_key.is_empty()),
        ];
        let wrong = given.into_iter().filter(|(_, given)| elsewhere && *given);
        wrong
            .map(|(key, _)| {
                let why = "is a setting of s3://, and store.url is another store: leave it out";
                Problem::new(key, why)
            })
            .collect()
    }

    /// Returns how to open the store.
    pub fn options(&self) -> OpenOptions {
        OpenOptions {
            endpoint: given(&self.endpoint),
            region: given(&self.region),
            path_style: self.path_style,
            // An invalid value is refused when the configuration is checked.
            encryption: self.encryption().unwrap_or_default(),
            gcs: GcsOptions {
                credentials: given(&self.gcs.credentials),
            },
            azure: AzureOptions {
                account: given(&self.azure.account),
                client_id: given(&self.azure.client_id),
            },
            ..OpenOptions::default()
        }
    }

    /// Returns how to read input at `url`: with the same credentials, and at the same endpoint if it is in the same cloud.
    pub fn options_of_input(&self, url: &str) -> OpenOptions {
        let cloud = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_owned());
        let mut options = OpenOptions {
            encryption: Encryption::default(),
            ..self.options()
        };
        if cloud(url) != cloud(&self.url) {
            options.endpoint = None;
        }
        options
    }

    fn encryption(&self) -> Result<Encryption, String> {
        Encryption::parse(&self.encryption, &self.kms_key)
    }
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_another_cloud_are_refused() {
        let mut table = StoreConfig {
            url: "gs://bucket/x".into(),
            kms_key: "alias/a".into(),
            encryption: "aws:kms".into(),
            ..StoreConfig::default()
        };
        let keys = |table: &StoreConfig| {
            let problems = table.check().into_iter();
            problems.map(|problem| problem.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&table), ["store.encryption", "store.kms_key"]);
        table.url = "s3://bucket/x".into();
        assert!(keys(&table).is_empty());
    }

    #[test]
    fn input_shares_the_endpoint_of_its_cloud() {
        let table = StoreConfig {
            url: "gs://bucket/x".into(),
            endpoint: "http://localhost:1".into(),
            ..StoreConfig::default()
        };
        let endpoint = |url| table.options_of_input(url).endpoint;
        assert_eq!(
            endpoint("gs://other/y").as_deref(),
            Some("http://localhost:1")
        );
        assert_eq!(endpoint("s3://other/y"), None);
    }

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
