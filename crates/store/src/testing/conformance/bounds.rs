//! Whole reads are bounded by their caller.

use super::Bench;
use super::tools::noise;
use crate::ErrorKind;

impl Bench {
    /// A whole read takes at most the bound, and its error names the size.
    pub(super) async fn bounds(self) {
        let body = noise(70_001, 11);
        let key = self.put("bound", &body).await;
        for (at_most, fits) in [
            (70_001, true),
            (u64::MAX, true),
            (70_000, false),
            (0, false),
        ] {
            let reads = [
                self.store.get(&key, at_most).await,
                self.store.get_fresh(&key, at_most).await,
            ];
            for read in reads {
                match read {
                    Ok(read) => assert!(fits && read == body, "{key} within {at_most} bytes"),
                    Err(error) => {
                        assert!(!fits, "{key} within {at_most} bytes: {error}");
                        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
                        let said = error.to_string();
                        let bound = format!("at most {at_most}");
                        let named = [&key, "70001 bytes", &bound];
                        assert!(named.iter().all(|part| said.contains(*part)), "{said}");
                    }
                }
            }
        }
        self.delete(&key).await;
    }
}
