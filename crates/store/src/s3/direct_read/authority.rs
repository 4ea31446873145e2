//! The server of a direct read.

use crate::proxy::Proxy;

/// The server to connect to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as in the request.
    pub(super) name: String,
    /// The proxy on the way to it.
    pub(super) proxy: Option<Proxy>,
}
