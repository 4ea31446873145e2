//! The proxy of requests to a store: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or small
//! letters. This machine and its own link are reached without one: stores of tests, and the metadata of instances.

use std::env;
use std::net::IpAddr;
use std::sync::LazyLock;

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
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(crate) authorization: Option<String>,
}

impl Proxy {
    /// Returns the URL of the proxy, without credentials.
    #[cfg(feature = "cloud")]
    pub(crate) fn url(&self) -> String {
        let bracketed = self.host.contains(':');
        let host = if bracketed {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        format!("http://{host}:{}", self.port)
    }
}

/// How to reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Through(Proxy),
    /// Through a proxy that a client library must reach.
    Other(String),
}

/// Returns how to reach the server of a URL.
pub(crate) fn way(url: &str) -> Way {
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

/// Returns whether a proxy is configured.
pub(crate) fn is_set() -> bool {
    let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    VARIABLES.iter().any(is_set)
}

/// Returns whether a host is this machine or on its own link, as the metadata service of a cloud is.
pub(crate) fn is_near(host: &str) -> bool {
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
pub(crate) fn check() -> Result<(), String> {
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
