//! The proxy of requests to a store: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or small
//! letters. This machine and its own link are reached without one: stores of tests, and the metadata of instances.

use std::env;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use aws_sdk_s3::config::SharedHttpClient;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::{
    RuntimeComponents, RuntimeComponentsBuilder,
};
use aws_smithy_types::config_bag::ConfigBag;
use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// The variables that name a proxy.
const VARIABLES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

static ENVIRONMENT: LazyLock<Matcher> = LazyLock::new(Matcher::from_env);

/// A proxy that is reached over plain TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(super) authorization: Option<String>,
}

/// How to reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Through(Proxy),
    /// Through a proxy that only the SDK can use.
    Other(String),
}

/// Returns how to reach the server of a URL.
pub(super) fn way(url: &str) -> Way {
    way_by(&ENVIRONMENT, url)
}

fn way_by(matcher: &Matcher, url: &str) -> Way {
    let uri = url
        .parse::<Uri>()
        .ok()
        .filter(|uri| !uri.host().is_some_and(is_near));
    let Some(found) = uri.and_then(|uri| matcher.intercept(&uri)) else {
        return Way::Direct;
    };
    let proxy = found.uri();
    match (proxy.scheme_str(), proxy.host()) {
        (Some("http"), Some(host)) => Way::Through(Proxy {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: proxy.port_u16().unwrap_or(80),
            authorization: found.basic_auth().and_then(|value| {
                let text = value.to_str().ok();
                text.map(str::to_owned)
            }),
        }),
        _ => Way::Other(proxy.to_string()),
    }
}

/// Returns whether a host is this machine or on its own link, as the metadata service of a cloud is.
fn is_near(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    match host.parse() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            // fd00:ec2:: is the metadata service of AWS.
            ip.is_loopback() || ip.is_unicast_link_local() || ip.segments()[..2] == [0xfd00, 0x0ec2]
        }
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// Checks that the variables are URLs of proxies: others would be ignored.
pub(super) fn check() -> Result<(), String> {
    let given = VARIABLES
        .iter()
        .filter_map(|name| Some((name, env::var(name).ok()?)));
    for (name, value) in given.filter(|(_, value)| !value.is_empty()) {
        if !is_proxy(&value) {
            return Err(format!(
                "invalid {name}: expected the URL of a proxy, for example http://proxy.example:3128"
            ));
        }
    }
    Ok(())
}

fn is_proxy(value: &str) -> bool {
    let uri: Option<Uri> = value.parse().ok();
    let scheme = |uri: &Uri| matches!(uri.scheme_str(), None | Some("http" | "https"));
    uri.is_some_and(|uri| uri.authority().is_some() && scheme(&uri))
}

/// Makes an HTTP client that keeps at most `kept` idle connections, each for at most `idle`.
pub(super) fn http_client(kept: usize, idle: Duration) -> SharedHttpClient {
    let tls = Provider::Rustls(CryptoMode::Ring);
    let direct = Builder::new()
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(kept)
        .tls_provider(tls.clone())
        .build_https();
    let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !VARIABLES.iter().any(is_set) {
        return direct;
    }
    let proxied = Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder()
            .proxy_config(ProxyConfig::from_env())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(kept);
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        connector.tls_provider(tls.clone()).build()
    });
    SharedHttpClient::new(Routed { direct, proxied })
}

/// A client that reaches near hosts without the proxy.
#[derive(Debug)]
struct Routed {
    direct: SharedHttpClient,
    proxied: SharedHttpClient,
}

impl HttpClient for Routed {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(RoutedConnector {
            direct: self.direct.http_connector(settings, components),
            proxied: self.proxied.http_connector(settings, components),
        })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.direct.validate_base_client_config(components, config)
    }
}

#[derive(Debug)]
struct RoutedConnector {
    direct: SharedHttpConnector,
    proxied: SharedHttpConnector,
}

impl HttpConnector for RoutedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let uri: Option<Uri> = request.uri().parse().ok();
        let near = uri.is_some_and(|uri| uri.host().is_some_and(is_near));
        let connector = if near { &self.direct } else { &self.proxied };
        connector.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_used_for_what_is_far_and_not_excepted() {
        let matcher = Matcher::builder()
            .http("http://user:pass@proxy.example:3128")
            .https("proxy.example")
            .no("minio.example,10.0.0.0/8")
            .build();
        let through = |url: &str| way_by(&matcher, url);
        let Way::Through(proxy) = through("http://store.example:9000/b/k") else {
            panic!("direct");
        };
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.example", 3128));
        assert_eq!(proxy.authorization.as_deref(), Some("Basic dXNlcjpwYXNz"));
        let Way::Through(proxy) = through("https://b.s3.eu-west-1.amazonaws.com/k") else {
            panic!("direct");
        };
        assert_eq!((proxy.port, proxy.authorization), (80, None));
        for near in [
            "http://minio.example:9000/b",
            "http://b.minio.example/k",
            "http://10.1.2.3:9000/b",
            "http://127.0.0.1:9000/b",
            "http://localhost:9000/b",
            "http://[::1]:9000/b",
            "http://169.254.169.254/latest",
            "http://[fd00:ec2::254]/latest",
        ] {
            assert_eq!(through(near), Way::Direct, "{near}");
        }
        let tls = Matcher::builder().all("https://proxy.example").build();
        let way = way_by(&tls, "http://store.example/b");
        assert_eq!(way, Way::Other("https://proxy.example/".to_owned()));
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        for good in [
            "http://p:3128",
            "https://p",
            "p.example:3128",
            "http://u:p@[::1]:80",
        ] {
            assert!(is_proxy(good), "{good}");
        }
        for bad in ["socks5://p:1080", "http://", "a b", "/path"] {
            assert!(!is_proxy(bad), "{bad}");
        }
    }
}
