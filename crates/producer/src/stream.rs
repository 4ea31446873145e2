//! The stream that this producer writes to: found with the same parameters, or made.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use batchweave_core::ids::{IdError, ProducerName, StreamId};
use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_log::{Creation, LogError, create};
use batchweave_store::Store;

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::prepare::list_inputs;
use crate::tokenizer::Tokenizer;

/// Makes sure that the stream is there and as configured.
pub(crate) async fn open(
    store: &Arc<dyn Store>,
    config: &ProducerConfig,
    tokenizer: &dyn Tokenizer,
) -> Result<(), RunError> {
    match store.head(keys::STREAM).await {
        Ok(_) => {}
        // A mistyped path must not leave a stream behind: its parameters are for ever.
        Err(e) if e.is_not_found() && config.stream.create => drop(list_inputs(config).await?),
        Err(e) if e.is_not_found() => {
            return Err(LogError::NoStream {
                root: store.root().to_owned(),
            }
            .into());
        }
        Err(e) => return Err(e.into()),
    }
    let producers: Result<Vec<ProducerName>, IdError> =
        config.stream.producers.iter().map(|p| p.parse()).collect();
    let wanted = StreamConfig {
        format: 1,
        stream_id: StreamId::from_random(rand::random()),
        slices: config.stream.slices,
        order: config.stream.order,
        producers: producers.map_err(RunError::task)?,
        tokenizer: tokenizer.identity().id.clone(),
        seq_len: config.stream.seq_len,
        rows_per_slice: config.stream.rows_per_slice,
        created: now(),
    };
    match create(store, &wanted).await? {
        Creation::Created(stream) => {
            tracing::info!(id = %stream.stream_id, root = store.root(), "created the stream");
        }
        Creation::Existed(stream) => tracing::debug!(id = %stream.stream_id, "found the stream"),
    }
    Ok(())
}

/// The time as RFC 3339, in UTC.
fn now() -> String {
    rfc3339(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs()),
    )
}

/// By whole 400-year cycles of 146,097 days that begin on 1 March (as in Hinnant's date algorithms).
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year_of_cycle = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_240_000), "2026-11-21T05:46:40Z");
    }
}
