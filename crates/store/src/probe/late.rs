//! A conditional put whose body comes late: another writer makes the key between its halves.

use std::time::Duration;

use futures::future::join;
use tokio::sync::oneshot;

use super::{LARGE_BYTES, bodies, judge};
use crate::{Halves, Inspect, Store, StoreError};

/// For the first half to arrive: a store looks when it has the head.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// Returns how many answers were unclear; `None` where no body can come late.
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
        // Not sent: the late put has ended, and its own answer says why.
        half.await.ok()?;
        tokio::time::sleep(ON_ITS_WAY).await;
        let answer = store.create(key, bodies[1].clone()).await;
        // It may have given up meanwhile.
        let _ = go.send(());
        Some(answer)
    };
    match join(late, other).await {
        (Some(late), Some(other)) => {
            let answers = vec![late, other];
            let unclear = judge(store, key, "creates, one of a late body,", &bodies, answers);
            unclear.await.map(Some)
        }
        (Some(Err(error)), None) => Err(error),
        _ => Ok(None),
    }
}
