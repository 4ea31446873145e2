//! The bucket's address and credentials: those of `gcloud auth application-default login`, a service account's key file,
//! or the metadata service of a machine or of GKE's Workload Identity.

use std::env;
use std::sync::Arc;

use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::{Credentials, Gcs};
use crate::cloud::answer::Fault;
use crate::cloud::signing::{self, Connector};
use crate::cloud::transport::{self, Transport};
use crate::{ErrorKind, OpenOptions};

const GOOGLE: &str = "https://storage.googleapis.com";
/// The variable of Google's own tools for an emulator, as `127.0.0.1:4443` or `http://127.0.0.1:4443`.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
pub(super) const HINT: &str = "set GOOGLE_APPLICATION_CREDENTIALS to a file of a service account or of \
     `gcloud auth application-default login`, or run where a service account is attached";

pub(super) fn resolve(bucket: &str, options: &OpenOptions) -> Result<(Transport, Gcs), Fault> {
    let emulator = env::var(EMULATOR).ok().filter(|host| !host.is_empty());
    let endpoint = options.endpoint.clone().or_else(|| emulator.map(url_of));
    let endpoint = checked(endpoint.unwrap_or_else(|| GOOGLE.to_owned()))?;
    // A token never goes over a connection that others can read.
    let anonymous = endpoint.starts_with("http://");
    let transport = Transport::new(&endpoint)?;
    let credentials = if anonymous {
        tracing::debug!(endpoint, "requests to this endpoint carry no credentials");
        None
    } else {
        Some(credentials(&endpoint, bucket, options)?)
    };
    let gcs = Gcs {
        endpoint,
        bucket: bucket.to_owned(),
        credentials,
    };
    Ok((transport, gcs))
}

fn url_of(host: String) -> String {
    if host.contains("://") {
        host
    } else {
        format!("http://{host}")
    }
}

fn checked(endpoint: String) -> Result<String, Fault> {
    let plain = endpoint.trim_end_matches('/');
    let rest = plain
        .strip_prefix("https://")
        .or_else(|| plain.strip_prefix("http://"));
    match rest {
        Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => {
            Ok(plain.to_owned())
        }
        _ => Err(Fault::unsent(
            ErrorKind::Invalid,
            format!(
                "invalid endpoint {endpoint:?}: expected a URL, for example {GOOGLE} or http://127.0.0.1:4443"
            ),
        )),
    }
}

fn credentials(endpoint: &str, bucket: &str, options: &OpenOptions) -> Result<Credentials, Fault> {
    let client = transport::client(endpoint, usize::MAX)?;
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(Connector(client))
        .with_retry(signing::token_tries());
    if let Some(file) = &options.gcs.credentials {
        builder = builder.with_config(GoogleConfigKey::ApplicationCredentials, file);
    }
    let built = builder
        .build()
        .map_err(|why| signing::unavailable(&why, HINT))?;
    Ok(Arc::clone(built.credentials()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls() {
        assert_eq!(url_of("127.0.0.1:4443".into()), "http://127.0.0.1:4443");
        assert_eq!(checked("http://h:1/".into()).unwrap(), "http://h:1");
        for bad in ["h:1", "https://", "ftp://h", "http://a b"] {
            let fault = checked(bad.into()).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Invalid);
            assert!(fault.detail.contains("for example"), "{}", fault.detail);
        }
    }

    #[test]
    fn requests_over_plain_http_carry_no_credentials() {
        let plain = OpenOptions {
            endpoint: Some("http://127.0.0.1:4443".into()),
            ..OpenOptions::default()
        };
        assert!(resolve("bucket", &plain).unwrap().1.credentials.is_none());
    }
}
