//! Makes the S3 clients from environment, profile and options: one without retries for conditional puts
//! of records, one with retries for data, and one without connection reuse for confirming reads.

use std::env;
use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::identity::IdentityCache;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{
    Credentials, RequestChecksumCalculation, ResponseChecksumValidation, SharedHttpClient,
};
use aws_types::service_config::ServiceConfigKey;

use super::credentials::Renewable;
use super::http;
use crate::limits::{self, CONNECT_TIMEOUT, DATA_TIMEOUT, POOL_IDLE, transfer};
use crate::proxy;
use crate::{ErrorKind, OpenOptions, PathStyle, Patience};

/// Idle connections to keep: no limit but the number of concurrent requests.
const KEPT: usize = usize::MAX;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// For commands and clients without a configuration file.
const PATH_STYLE: &str = "BATCHWEAVE_PATH_STYLE";
/// The region for custom endpoints when none is configured.
const CUSTOM_REGION: &str = "us-east-1";

pub(super) struct Clients {
    pub(super) commit: Client,
    pub(super) data: Client,
    pub(super) fresh: Client,
    /// The endpoint's name for messages.
    pub(super) endpoint: String,
    /// `None` with fixed keys.
    pub(super) credentials: Option<Renewable>,
}

/// The reason why the clients cannot be made.
type Problem = (ErrorKind, String);

pub(super) async fn clients(options: &OpenOptions) -> Result<Clients, Problem> {
    proxy::check().map_err(|why| (ErrorKind::Invalid, why))?;
    let (sdk, credentials) = load(options).await;
    let endpoint = options
        .endpoint
        .clone()
        .or_else(|| configured_endpoint(&sdk));
    let custom = match &endpoint {
        Some(url) => !is_aws(host(url)?),
        None => false,
    };
    let region = sdk
        .region()
        .cloned()
        .or_else(|| custom.then(|| Region::new(CUSTOM_REGION)));
    let Some(region) = region else {
        let detail = "no region: nothing in AWS_REGION, the profile or instance metadata";
        return Err((ErrorKind::WrongRegion, detail.to_owned()));
    };
    let in_path = is_in_path(options.path_style, endpoint.as_deref())?;
    tracing::debug!(?endpoint, custom, in_path, %region, "s3 store");
    let named = name(endpoint.as_deref(), &region);
    let mut base = aws_sdk_s3::config::Builder::from(&sdk)
        .region(region)
        .force_path_style(in_path)
        .interceptor(super::bounded::BoundedAnswers)
        // Replaced by our own time-outs of every request and every chunk of a body.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .request_checksum_calculation(if custom {
            RequestChecksumCalculation::WhenRequired
        } else {
            RequestChecksumCalculation::WhenSupported
        })
        .response_checksum_validation(if custom {
            ResponseChecksumValidation::WhenRequired
        } else {
            ResponseChecksumValidation::WhenSupported
        });
    base.set_endpoint_url(endpoint);
    let commit = base
        .clone()
        .http_client(http_client(KEPT))
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(limits::commit(options.patience, 0)));
    let (attempts, attempt) = limits::tries(options.patience);
    let data = base
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(attempts)
                .with_initial_backoff(BACKOFF_FIRST)
                .with_max_backoff(BACKOFF_MAX),
        )
        .timeout_config(timeouts(attempt));
    let fresh = data.clone().http_client(http_client(0));
    Ok(Clients {
        commit: Client::from_conf(commit.build()),
        data: Client::from_conf(data.build()),
        fresh: Client::from_conf(fresh.build()),
        endpoint: named,
        credentials,
    })
}

/// Returns the endpoint's name for messages, with the proxy on the way to it.
fn name(endpoint: Option<&str>, region: &Region) -> String {
    let named = endpoint.map_or_else(|| format!("Amazon S3 in {region}"), str::to_owned);
    let aws = || format!("https://s3.{region}.amazonaws.com/");
    match proxy::way(&endpoint.map_or_else(aws, str::to_owned)) {
        proxy::Way::Direct => named,
        proxy::Way::Through(proxy) => {
            format!("{named} through the proxy {}:{}", proxy.host, proxy.port)
        }
        proxy::Way::Other(proxy) => format!("{named} through the proxy {proxy}"),
    }
}

/// Returns whether requests name the bucket in their path.
fn is_in_path(style: PathStyle, endpoint: Option<&str>) -> Result<bool, Problem> {
    let host = endpoint.map(host).transpose()?;
    let style = match style {
        PathStyle::Auto => env::var(PATH_STYLE)
            .unwrap_or_default()
            .parse()
            .map_err(|why| (ErrorKind::Invalid, format!("{PATH_STYLE}: {why}")))?,
        style => style,
    };
    match style {
        PathStyle::Auto => Ok(host.is_some_and(|host| !is_aws(host))),
        PathStyle::Path => Ok(true),
        PathStyle::Host => match host.filter(|host| is_address(host)) {
            None => Ok(false),
            Some(host) => {
                let detail = format!(
                    "path_style = false puts the bucket's name before the endpoint's, but {host} is an address: name the \
                     endpoint, or leave path_style out"
                );
                Err((ErrorKind::Invalid, detail))
            }
        },
    }
}

fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Returns the configuration of a data request with a body of this many bytes.
pub(super) fn for_body(bytes: usize) -> aws_sdk_s3::config::Builder {
    aws_sdk_s3::config::Builder::new().timeout_config(timeouts(DATA_TIMEOUT + transfer(bytes)))
}

/// Returns the configuration of a conditional put of a record, input list or snapshot.
pub(super) fn for_record(patience: Patience, bytes: usize) -> aws_sdk_s3::config::Builder {
    aws_sdk_s3::config::Builder::new().timeout_config(timeouts(limits::commit(patience, bytes)))
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(attempt)
        .build()
}

/// Makes a client that keeps at most `kept` idle connections.
fn http_client(kept: usize) -> SharedHttpClient {
    http::http_client(kept, POOL_IDLE)
}

async fn load(options: &OpenOptions) -> (SdkConfig, Option<Renewable>) {
    let http = http_client(KEPT);
    let region = region_chain(options).region().await;
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http.clone())
        .region(region.clone());
    if let Some(profile) = &options.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(keys) = &options.keys {
        let fixed = Credentials::new(&keys.id, &keys.secret, None, None, "options");
        return (loader.credentials_provider(fixed).load().await, None);
    }
    let credentials = Renewable::new(options.profile.clone(), region, http);
    let loader = loader
        .credentials_provider(credentials.clone())
        // Kept by `credentials`, which can be made to read them again.
        .identity_cache(IdentityCache::no_cache());
    (loader.load().await, Some(credentials))
}

/// Instance metadata is consulted only where it can matter: elsewhere it costs a time-out.
fn region_chain(options: &OpenOptions) -> RegionProviderChain {
    let mut profile = ProfileFileRegionProvider::builder();
    if let Some(name) = &options.profile {
        profile = profile.profile_name(name);
    }
    let chain = RegionProviderChain::first_try(options.region.clone().map(Region::new))
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(profile.build());
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let elsewhere = options.endpoint.is_some()
        || options.keys.is_some()
        || [
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ACCESS_KEY_ID",
        ]
        .into_iter()
        .any(is_set);
    if elsewhere {
        chain
    } else {
        chain.or_else(ImdsRegionProvider::builder().build())
    }
}

/// Returns `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or the profile's, in the SDK's order.
fn configured_endpoint(sdk: &SdkConfig) -> Option<String> {
    let key = ServiceConfigKey::builder()
        .service_id("S3")
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url")
        .build()
        .ok()?;
    let of_service = sdk
        .service_config()
        .and_then(|config| config.load_config(key));
    of_service.or_else(|| sdk.endpoint_url().map(str::to_owned))
}

fn host(endpoint: &str) -> Result<&str, Problem> {
    let rest = endpoint
        .strip_prefix("https://")
        .or_else(|| endpoint.strip_prefix("http://"));
    match rest.and_then(|rest| rest.split(['/', ':']).next()) {
        Some(host) if !host.is_empty() && !endpoint.contains(char::is_whitespace) => Ok(host),
        _ => {
            let detail = format!(
                "invalid endpoint {endpoint:?}: expected a URL, for example https://minio.example:9000 or http://127.0.0.1:9000"
            );
            Err((ErrorKind::Invalid, detail))
        }
    }
}

fn is_aws(host: &str) -> bool {
    host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        assert!(is_aws(host("https://s3.eu-west-1.amazonaws.com").unwrap()));
        assert!(!is_aws(host("http://127.0.0.1:9000/x").unwrap()));
        for bad in ["127.0.0.1:9000", "https://", "ftp://a", "http://a b"] {
            let (kind, detail) = host(bad).unwrap_err();
            assert_eq!(kind, ErrorKind::Invalid);
            assert!(
                detail.contains(bad) && detail.contains("for example"),
                "{detail}"
            );
        }
    }

    #[test]
    fn where_requests_name_the_bucket() {
        let of = |style, endpoint| is_in_path(style, endpoint);
        let (minio, aws) = (
            Some("http://minio.example:9000"),
            Some("https://s3.eu-west-1.amazonaws.com"),
        );
        assert_eq!(of(PathStyle::Auto, minio), Ok(true));
        assert_eq!(of(PathStyle::Auto, aws), Ok(false));
        assert_eq!(of(PathStyle::Auto, None), Ok(false));
        assert_eq!(of(PathStyle::Path, None), Ok(true));
        assert_eq!(of(PathStyle::Host, minio), Ok(false));
        for address in ["http://10.0.0.7:9000", "http://[::1]:9000"] {
            let (kind, detail) = of(PathStyle::Host, Some(address)).unwrap_err();
            assert_eq!(kind, ErrorKind::Invalid);
            assert!(detail.contains("is an address"), "{detail}");
        }
    }

    #[test]
    fn time_outs_grow_with_the_body() {
        let attempt = timeouts(DATA_TIMEOUT).operation_attempt_timeout();
        assert_eq!(attempt, Some(Duration::from_secs(10)));
        assert!(format!("{:?}", for_body(16 << 20)).contains("26s"));
        assert!(format!("{:?}", for_record(Patience::Long, 0)).contains("4s"));
        // A list of 100,000 files, over a link of 2 MiB/s.
        let list = 13 << 20;
        assert!(format!("{:?}", for_record(Patience::Long, list)).contains("17s"));
    }
}
