//! The account's address and credentials, as Azure's own tools find them: a connection string, the account's
//! key, a shared access signature, workload identity, a service principal, or the machine's managed identity.

use std::env;
use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::{Azure, Credentials};
use crate::cloud::answer::Fault;
use crate::cloud::signing::{self, Connector};
use crate::cloud::transport::{self, Transport};
use crate::{ErrorKind, OpenOptions};

pub(super) const HINT: &str = "set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or run \
     with a workload identity or a managed identity";
/// Variables with the name of the account.
const ACCOUNT: [&str; 2] = ["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"];
const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
/// Names of Azure's command line that the library does not know.
const OTHER_NAMES: [(&str, AzureConfigKey); 2] = [
    ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
    ("AZURE_STORAGE_SAS_TOKEN", AzureConfigKey::SasKey),
];

pub(super) fn resolve(
    container: &str,
    host: Option<&str>,
    options: &OpenOptions,
) -> Result<(Transport, Azure), Fault> {
    let connection = if let Some(keys) = &options.keys {
        Connection {
            account: Some(keys.id.clone()),
            key: Some(keys.secret.clone()),
            ..Connection::default()
        }
    } else {
        let text = given(CONNECTION);
        let read = text.as_deref().map(Connection::parse).transpose()?;
        read.unwrap_or_default()
    };
    let account = account(host, options, &connection)?;
    let endpoint = endpoint(host, &account, options, &connection)?;
    let azure = Azure {
        credentials: credentials(container, &account, &endpoint, options, &connection)?,
        endpoint,
        account,
        container: container.to_owned(),
    };
    Ok((Transport::new(&azure.endpoint)?, azure))
}

fn given(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn invalid(why: impl Into<String>) -> Fault {
    Fault::unsent(ErrorKind::Invalid, why)
}

fn account(
    host: Option<&str>,
    options: &OpenOptions,
    connection: &Connection,
) -> Result<String, Fault> {
    let of_host = host.and_then(|host| host.split('.').next().map(str::to_owned));
    let of_variable = || ACCOUNT.into_iter().find_map(given);
    of_host
        .or_else(|| options.azure.account.clone())
        .or_else(|| connection.account.clone())
        .or_else(of_variable)
        .ok_or_else(|| {
            invalid(format!(
                "az:// does not name the storage account: set store.azure.account or {}, or write \
                 abfss://container@account.dfs.core.windows.net/prefix",
                ACCOUNT[0]
            ))
        })
}

fn endpoint(
    host: Option<&str>,
    account: &str,
    options: &OpenOptions,
    connection: &Connection,
) -> Result<String, Fault> {
    let of_host = host.map(|host| format!("https://{}", host.replacen(".dfs.", ".blob.", 1)));
    let endpoint = options
        .endpoint
        .clone()
        .or(of_host)
        .or_else(|| connection.endpoint(account));
    let endpoint = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
    let plain = endpoint.trim_end_matches('/').to_owned();
    let rest = plain
        .strip_prefix("https://")
        .or_else(|| plain.strip_prefix("http://"));
    match rest {
        Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => Ok(plain),
        _ => Err(invalid(format!(
            "invalid endpoint {endpoint:?}: expected the account's URL, for example \
             https://account.blob.core.windows.net or http://127.0.0.1:10000/devstoreaccount1"
        ))),
    }
}

fn credentials(
    container: &str,
    account: &str,
    endpoint: &str,
    options: &OpenOptions,
    connection: &Connection,
) -> Result<Credentials, Fault> {
    let client = transport::client(endpoint, usize::MAX)?;
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_account(account)
        .with_container_name(container)
        .with_endpoint(endpoint.to_owned())
        .with_use_emulator(false)
        .with_http_connector(Connector(client))
        .with_retry(signing::token_tries());
    for (name, key) in OTHER_NAMES.into_iter().filter(|_| options.keys.is_none()) {
        if let Some(value) = given(name) {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(key) = &connection.key {
        builder = builder.with_access_key(key);
    }
    if let Some(signature) = &connection.signature {
        builder = builder.with_config(AzureConfigKey::SasKey, signature);
    }
    if let Some(id) = &options.azure.client_id {
        builder = builder.with_client_id(id);
    }
    let built = builder
        .build()
        .map_err(|why| signing::unavailable(&why, HINT))?;
    // A key or token never goes over a connection that others can read, except within this machine.
    if endpoint.starts_with("http://") && !is_near(endpoint) {
        let why =
            format!("{endpoint} is plain HTTP, which would show the credentials: use https://");
        return Err(invalid(why));
    }
    Ok(Arc::clone(built.credentials()))
}

fn is_near(endpoint: &str) -> bool {
    let uri: Option<http::Uri> = endpoint.parse().ok();
    let host = uri.as_ref().and_then(http::Uri::host);
    host.is_some_and(crate::proxy::is_near)
}

/// A connection string of a storage account.
#[derive(Debug, Default, PartialEq, Eq)]
struct Connection {
    account: Option<String>,
    key: Option<String>,
    signature: Option<String>,
    blobs: Option<String>,
    suffix: Option<String>,
    protocol: Option<String>,
    development: bool,
}

/// The account and key that every emulator has: <https://learn.microsoft.com/azure/storage/common/storage-use-azurite>.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

impl Connection {
    /// Parses parts as `Name=value`, separated by `;`. The error shows no value, since some are secrets.
    fn parse(text: &str) -> Result<Self, Fault> {
        let mut read = Self::default();
        for part in text
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let Some((name, value)) = part.split_once('=') else {
                let why = format!("invalid {CONNECTION}: a part is not Name=value");
                return Err(invalid(why));
            };
            let value = Some(value.to_owned()).filter(|value| !value.is_empty());
            match name.to_ascii_lowercase().as_str() {
                "accountname" => read.account = value,
                "accountkey" => read.key = value,
                "sharedaccesssignature" => read.signature = value,
                "blobendpoint" => read.blobs = value,
                "endpointsuffix" => read.suffix = value,
                "defaultendpointsprotocol" => read.protocol = value,
                "usedevelopmentstorage" => {
                    read.development = value.is_some_and(|v| v.eq_ignore_ascii_case("true"));
                }
                // Endpoints of queues, tables and files.
                other if other.ends_with("endpoint") => {}
                "developmentstorageproxyuri" => {}
                // A mistyped key would leave the search for credentials to other places.
                _ => {
                    return Err(invalid(format!(
                        "invalid {CONNECTION}: unknown part {name:?}"
                    )));
                }
            }
        }
        if read.development {
            read.account.get_or_insert(EMULATOR_ACCOUNT.to_owned());
            read.key.get_or_insert(EMULATOR_KEY.to_owned());
            let url = format!("http://127.0.0.1:10000/{EMULATOR_ACCOUNT}");
            read.blobs.get_or_insert(url);
        }
        Ok(read)
    }

    fn endpoint(&self, account: &str) -> Option<String> {
        let built = || {
            let suffix = self.suffix.as_ref()?;
            let protocol = self.protocol.as_deref().unwrap_or("https");
            Some(format!("{protocol}://{account}.blob.{suffix}"))
        };
        self.blobs.clone().or_else(built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AzureOptions;

    #[test]
    fn connection_strings() {
        let read = Connection::parse(
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5PT0=;EndpointSuffix=core.chinacloudapi.cn;",
        )
        .unwrap();
        assert_eq!(read.key.as_deref(), Some("a2V5PT0="));
        let url = "https://a.blob.core.chinacloudapi.cn";
        assert_eq!(read.endpoint("a").as_deref(), Some(url));
        let here = Connection::parse("UseDevelopmentStorage=true").unwrap();
        assert_eq!(here.account.as_deref(), Some(EMULATOR_ACCOUNT));
        assert!(
            here.endpoint("x")
                .unwrap()
                .starts_with("http://127.0.0.1:10000/")
        );
        let why = Connection::parse("AccountKey").unwrap_err().detail;
        assert!(why.contains("Name=value"), "{why}");
        let why = Connection::parse("AcountKey=a2V5").unwrap_err().detail;
        assert!(why.contains("AcountKey") && !why.contains("a2V5"), "{why}");
        assert!(Connection::parse("QueueEndpoint=https://a").is_ok());
    }

    #[test]
    fn the_account_and_its_address() {
        let none = Connection::default();
        let named = OpenOptions {
            azure: AzureOptions {
                account: Some("acme".into()),
                client_id: None,
            },
            ..OpenOptions::default()
        };
        let of = |host, options: &OpenOptions| {
            let account = account(host, options, &none)?;
            endpoint(host, &account, options, &none)
        };
        assert_eq!(
            of(None, &named).unwrap(),
            "https://acme.blob.core.windows.net"
        );
        let host = Some("other.dfs.core.windows.net");
        assert_eq!(
            of(host, &named).unwrap(),
            "https://other.blob.core.windows.net"
        );
        let own = OpenOptions {
            endpoint: Some("http://127.0.0.1:10000/acme/".into()),
            ..named
        };
        assert_eq!(of(None, &own).unwrap(), "http://127.0.0.1:10000/acme");
        let bad = OpenOptions {
            endpoint: Some("127.0.0.1".into()),
            ..own
        };
        assert!(of(None, &bad).unwrap_err().detail.contains("for example"));
    }
}
