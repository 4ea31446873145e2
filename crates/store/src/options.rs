//! Settings of a store beside its URL.

use std::os::fd::BorrowedFd;
use std::{fmt, io};

use crate::path_style::PathStyle;

/// Settings beside the URL. The defaults come from the environment and AWS profiles.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Create the root folder of a `file://` store if it is absent.
    pub create: bool,
    /// Accept a root folder of a `file://` store that does not exist yet: until it does, requests fail with
    /// `NoBucket`.
    pub await_folder: bool,
    /// Endpoint of the store; without one that of its cloud's variables (`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` or
    /// the profile's, `STORAGE_EMULATOR_HOST`, `AZURE_STORAGE_CONNECTION_STRING`), or the cloud's own.
    pub endpoint: Option<String>,
    /// S3 region, instead of `AWS_REGION` or the profile's.
    pub region: Option<String>,
    /// AWS profile, instead of `AWS_PROFILE`.
    pub profile: Option<String>,
    /// Whether requests to S3 name the bucket in the path or in the host.
    pub path_style: PathStyle,
    /// Fixed keys, instead of the chain of environment, profile, web identity, container and
    /// instance credentials: for S3, and for Azure as the account and its key. For tests and demos.
    pub keys: Option<AccessKeys>,
    /// Encryption at rest of objects written to S3.
    pub encryption: Encryption,
    /// Settings of Google Cloud Storage.
    pub gcs: GcsOptions,
    /// Settings of Azure Blob Storage.
    pub azure: AzureOptions,
    /// Tries and time-outs of requests over a network.
    pub patience: Patience,
    /// Read objects of others, whose keys may have any characters. Such a store creates nothing.
    pub input: bool,
    /// An optimization of large reads: fewer wake-ups per byte.
    pub low_water: Option<LowWater>,
}

/// Settings of Google Cloud Storage beside the endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcsOptions {
    /// File of a service account or of `gcloud auth application-default login`, instead of
    /// `GOOGLE_APPLICATION_CREDENTIALS`.
    pub credentials: Option<String>,
}

/// Settings of Azure Blob Storage beside the endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureOptions {
    /// The storage account of `az://` URLs, instead of `AZURE_STORAGE_ACCOUNT`.
    pub account: Option<String>,
    /// The client id of the managed identity, where a machine has several, instead of `AZURE_CLIENT_ID`.
    pub client_id: Option<String>,
}

/// Tries and time-outs of requests to a store that does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Patience {
    /// Five tries, with time for large bodies and a slow store.
    #[default]
    Long,
    /// Two short tries: for the first request of a command that a person waits for.
    Short,
    /// As `Long`, with 15 times the time of each: for tests of stores on a machine with other load.
    Loaded,
}

/// Sets the number of bytes from which a socket counts as readable (`SO_RCVLOWAT`). Passed in, because
/// the call needs unsafe code, which this crate forbids.
pub type LowWater = fn(BorrowedFd<'_>, usize) -> io::Result<()>;

/// Encryption at rest requested by every write to S3. By default none is requested and the bucket's own
/// default applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// `AES256`, `aws:kms` or `aws:kms:dsse`.
    mode: Option<String>,
    /// The KMS key; `None` for the account's default key.
    kms_key: Option<String>,
}

impl Encryption {
    /// Parses two configuration values, each of which may be empty. The error names the invalid one.
    pub fn parse(mode: &str, kms_key: &str) -> Result<Self, String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if !["", "AES256", "aws:kms", "aws:kms:dsse"].contains(&mode) {
            return Err(format!(
                "invalid encryption {mode:?}: use AES256, aws:kms or aws:kms:dsse, or leave it empty for the bucket's default"
            ));
        }
        if !kms_key.is_empty() && !mode.starts_with("aws:kms") {
            return Err("a KMS key needs the encryption aws:kms or aws:kms:dsse".to_owned());
        }
        Ok(Self {
            mode: given(mode),
            kms_key: given(kms_key),
        })
    }
}

#[cfg(feature = "s3")]
impl Encryption {
    /// Returns the value of the request header.
    pub(crate) fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    /// Returns the KMS key for the request header.
    pub(crate) fn kms_key(&self) -> Option<String> {
        self.kms_key.clone()
    }
}

/// A fixed pair of keys; `Debug` hides the secret.
#[derive(Clone)]
pub struct AccessKeys {
    /// The access key id, as in `AWS_ACCESS_KEY_ID`.
    pub id: String,
    /// The secret key, as in `AWS_SECRET_ACCESS_KEY`.
    pub secret: String,
}

impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessKeys({}, ...)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_encryptions_are_refused() {
        for (mode, key) in [
            ("", ""),
            ("AES256", ""),
            ("aws:kms", ""),
            ("aws:kms", "alias/a"),
        ] {
            Encryption::parse(mode, key).unwrap();
        }
        let wrong = Encryption::parse("aes256", "").unwrap_err();
        assert!(wrong.contains("use AES256"), "{wrong}");
        let wrong = Encryption::parse("AES256", "alias/a").unwrap_err();
        assert!(wrong.contains("needs the encryption aws:kms"), "{wrong}");
    }
}
