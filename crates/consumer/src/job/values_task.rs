//! The task that stores objects of values.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::resources::Resources;

/// Stores sealed objects until `finish`, then those that are left. One that the store does not take for as long as other
/// objects are retried is lost, and counted.
pub(crate) async fn run(resources: Arc<Resources>, finish: CancellationToken) {
    let values = &resources.values;
    loop {
        while let Some((key, body, steps)) = values.next() {
            let outcome = match resources.create(&key, body).await {
                Ok(()) => "stored",
                Err(why) => {
                    tracing::warn!(
                        key, steps, %why,
                        "losses that ranks reported could not be stored, and are lost; states of steps are in ledgers"
                    );
                    "lost"
                }
            };
            let count = resources.metrics.values.with_label_values(&[outcome]);
            count.inc_by(steps);
            resources.states.stored(&values.done());
        }
        if finish.is_cancelled() {
            return;
        }
        tokio::select! {
            biased;
            () = values.sealed.notified() => {}
            () = finish.cancelled() => {}
        }
    }
}
