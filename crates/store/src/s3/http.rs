//! The HTTP client of the SDK, which reaches near hosts without the proxy.

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

use crate::proxy;

/// Makes an HTTP client that keeps at most `kept` idle connections, each for at most `idle`.
pub(super) fn http_client(kept: usize, idle: Duration) -> SharedHttpClient {
    let tls = Provider::Rustls(CryptoMode::Ring);
    let direct = Builder::new()
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(kept)
        .tls_provider(tls.clone())
        .build_https();
    if !proxy::is_set() {
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
        let near = uri.is_some_and(|uri| uri.host().is_some_and(proxy::is_near));
        let connector = if near { &self.direct } else { &self.proxied };
        connector.call(request)
    }
}
