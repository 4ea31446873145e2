//! A race with a late body: another writer creates the key between its two halves.

use std::time::Duration;

use futures::future::join;
use tokio::sync::oneshot;

use super::{LARGE_BYTES, bodies, check_race};
use crate::{Halves, Inspect, Store, StoreError};

/// Time for the first half to arrive: stores check the key when they have the head.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// Returns the number of unclear answers; `None` where no body can be late.
pub(super) async fn put(
    store: &dyn Store,
    inspect: &dyn Inspect,
    key: &str,
) -> Result<Option<usize>, StoreError> {
    let bodies = bodies(key, 2, LARGE_BYTES);
    let (sent, half) = oneshot::channel();
    let (go, go_on) = oneshot::channel();
    let late = inspect.put_in_halves(key, bodies[0].clone(), Halves { sent, go_on });
    let other = async {
        // Without the signal the late put has failed, and its own answer tells why.
        half.await.ok()?;
        tokio::time::sleep(ON_ITS_WAY).await;
        let answer = store.create(key, bodies[1].clone()).await;
        // The late put may have timed out.
        let _ = go.send(());
        Some(answer)
    };
    match join(late, other).await {
        (Some(late), Some(other)) => {
            let answers = vec![late, other];
            let unclear = check_race(store, key, "creates, one of a late body,", &bodies, answers);
            unclear.await.map(Some)
        }
        (Some(Err(error)), None) => Err(error),
        _ => Ok(None),
    }
}
