//! Credentials by the `object_store` crate, which finds and renews them as the clouds' own tools do; its requests for
//! tokens go through our client.

use std::sync::Arc;
use std::time::Duration;

use object_store::RetryConfig;
use object_store::client::{
    ClientOptions, CredentialProvider, HttpClient, HttpConnector, HttpError,
};
use reqwest::Client;

use super::answer::Fault;
use crate::limits::DATA_TIMEOUT;
use crate::message::{chain, find, innermost};
use crate::{ErrorKind, secrets};

/// Our client, for requests of tokens.
#[derive(Debug)]
pub(crate) struct Connector(pub(crate) Client);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Returns how often a request of a token is repeated. Requests to the store are never repeated there.
pub(crate) fn token_tries() -> RetryConfig {
    RetryConfig {
        max_retries: 3,
        retry_timeout: Duration::from_secs(5),
        ..RetryConfig::default()
    }
}

/// Returns the present credentials.
pub(crate) async fn credentials<C>(
    provider: &dyn CredentialProvider<Credential = C>,
    hint: &str,
) -> Result<Arc<C>, Fault> {
    let found = tokio::time::timeout(DATA_TIMEOUT, provider.get_credential()).await;
    let Ok(found) = found else {
        let why = format!("no token for {} s", DATA_TIMEOUT.as_secs());
        return Err(Fault::unsent(ErrorKind::Timeout, why));
    };
    found.map_err(|why| unavailable(&why, hint))
}

/// Explains why there are no credentials.
pub(crate) fn unavailable(error: &object_store::Error, hint: &str) -> Fault {
    let why = innermost(error);
    // A server of tokens that does not answer, or fails, may do better later.
    let later = find::<HttpError>(error).is_some() || chain(error).contains("status code: 5");
    let kind = if later {
        ErrorKind::Unreachable
    } else {
        ErrorKind::Denied
    };
    Fault::unsent(kind, format!("no credentials: {hint} ({why})"))
}

/// Notes a token that requests carry, since an answer may echo it.
pub(crate) fn note(token: &str) {
    secrets::note(token);
}
