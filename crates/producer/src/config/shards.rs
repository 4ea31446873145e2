//! Checks of the keys for tar shards.

use batchweave_core::tgb::Dtype;
use batchweave_daemon::config::Problem;

use super::{ProducerConfig, SourceContent};
use crate::sources::{MemberKind, alternatives};

impl ProducerConfig {
    /// Adds what `source.format = "webdataset"` and the fields of arrays can't be combined with.
    pub(super) fn check_shards(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, message: String| problems.push(Problem::new(key, message));
        for array in &self.packing.arrays {
            let mut kinds = alternatives(array.source()).map(MemberKind::from_field);
            let first = kinds.next();
            if kinds.any(|kind| Some(kind) != first) {
                let message = format!(
                    "takes {:?} from files that are read differently; name alternatives of one kind in from, as \"jpg;png\"",
                    array.name
                );
                wrong("packing.arrays", message);
            }
        }
        if !self.transform.function.is_empty() {
            // The function makes the content of the samples.
            return;
        }
        let mut sources = self.sources.iter();
        let shards = self.source.format.is_shards();
        if !shards && !sources.any(|s| s.format.is_shards()) {
            return;
        }
        if self.source.content == SourceContent::Ids {
            let message = "\"ids\" is not for source.format = \"webdataset\", whose samples hold texts or arrays";
            wrong("source.content", message.to_owned());
        }
        for array in &self.packing.arrays {
            let bytes = MemberKind::from_field(array.source()) == MemberKind::Bytes;
            if bytes && array.dtype != Dtype::U8 && array.image.is_none() {
                let message = format!(
                    "makes {} of {:?}, whose files hold bytes; set dtype = \"U8\", or name a field that ends in .npy, .cls or .json",
                    array.dtype.name(),
                    array.name
                );
                wrong("packing.arrays", message);
            }
        }
    }
}
