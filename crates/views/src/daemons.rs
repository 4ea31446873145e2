//! The status of named daemons, from `/status.json` of their admin endpoints.

use batchweave_console::{CliError, admin_endpoint};
use futures::{StreamExt, stream};
use serde::de::DeserializeOwned;

/// Most daemons that one command reads.
const DAEMONS_MAX: usize = 256;
/// A status has some ten kilobytes.
const ANSWER_BYTES_MAX: u64 = 512 << 10;
const READS_AT_ONCE: usize = 64;

/// Checks the address of an admin endpoint.
pub(crate) fn parse_address(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
    let host = parts.map_or("", |(host, _)| host);
    let strange = |c: char| c.is_whitespace() || c.is_control() || "/@?#".contains(c);
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    if host.is_empty() || host.contains(strange) || bare_v6 || port.is_none_or(|port| port == 0) {
        return Err(format!(
            "invalid address \"{text}\": expected HOST:PORT as in admin.listen, for example \"10.0.0.7:9465\""
        ));
    }
    Ok(text.to_owned())
}

/// Fails when `option` names more daemons than one command reads.
pub(crate) fn check_number(addresses: &[String], option: &str) -> Result<(), CliError> {
    let number = addresses.len();
    if number <= DAEMONS_MAX {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{number} daemons are too many: name at most {DAEMONS_MAX} with {option}"
    )))
}

/// Reads the status of all, in their order. An error is the reason why nothing is known of a daemon.
pub(crate) async fn read_all<S: DeserializeOwned>(addresses: &[String]) -> Vec<Result<S, String>> {
    let reads = addresses.iter().map(|address| read(address));
    stream::iter(reads).buffered(READS_AT_ONCE).collect().await
}

async fn read<S: DeserializeOwned>(address: &str) -> Result<S, String> {
    let answer = admin_endpoint::get(address, "/status.json", ANSWER_BYTES_MAX).await;
    let (good, body) = answer.map_err(|why| {
        format!("does not answer: {why}; start the daemon, or name its admin.listen")
    })?;
    let status = if good {
        serde_json::from_str(&body).map_err(|why| why.to_string())
    } else {
        Err("it has no /status.json".to_owned())
    };
    status.map_err(|why| {
        format!("answers, but not as a daemon of BatchWeave ({why}); name its admin.listen")
    })
}
