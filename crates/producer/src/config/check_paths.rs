//! Checks of arrays whose field or column holds the path of a file.

use batchweave_daemon::config::Problem;

use super::ProducerConfig;

impl ProducerConfig {
    /// Adds what `path` in `packing.arrays` and `source.root` can't be combined with.
    pub(super) fn check_paths(&self, problems: &mut Vec<Problem>) {
        let arrays = &self.packing.arrays;
        let Some(array) = arrays.iter().find(|array| array.path) else {
            if !self.source.root.is_empty() {
                let message =
                    "is for packing.arrays with path = true only; set path, or remove the root";
                problems.push(Problem::new("source.root", message));
            }
            return;
        };
        let formats = [self.source.format].into_iter();
        let mut formats = formats.chain(self.sources.iter().map(|source| source.format));
        let faults = [
            (
                !self.transform.function.is_empty(),
                "with transform.function, which gets the path and can read the file; remove path",
            ),
            (
                formats.any(|f| !f.has_fields()),
                "which is for JSONL, Parquet, Arrow and CSV; remove path, or set source.format to one of these",
            ),
            (
                arrays.iter().any(|array| array.path && array.base64),
                "with base64, and the field holds one of both; remove path or base64",
            ),
        ];
        for (_, why) in faults.iter().filter(|(bad, _)| *bad) {
            let message = format!("{:?} has path = true {why}", array.name);
            problems.push(Problem::new("packing.arrays", message));
        }
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::tgb::Dtype;
    use batchweave_daemon::config::Config;

    use super::*;
    use crate::config::PackingMode;
    use crate::packing::ArraySpec;
    use crate::sources::Format;

    fn faults(change: impl FnOnce(&mut ProducerConfig)) -> Vec<String> {
        let mut config = ProducerConfig::default();
        config.packing.mode = PackingMode::Opaque;
        config.stream.seq_len = 1;
        config.packing.arrays = vec![ArraySpec {
            name: "image".to_owned(),
            dtype: Dtype::U8,
            shape: Vec::new(),
            base64: false,
            path: true,
            image: None,
            shortest: None,
            from: String::new(),
        }];
        change(&mut config);
        let keys = ["source.root", "packing.arrays"];
        let own = config.check().into_iter();
        let own = own.filter(|problem| keys.contains(&problem.key.as_str()));
        own.map(|problem| problem.message).collect()
    }

    #[test]
    fn paths_in_columns_are_accepted() {
        let none: [&str; 0] = [];
        assert_eq!(faults(|_| ()), none);
        assert_eq!(faults(|c| c.source.root = "data".to_owned()), none);
        assert_eq!(faults(|c| c.source.format = Format::Parquet), none);
    }

    #[test]
    fn contradictions_are_named() {
        let one = |change: fn(&mut ProducerConfig)| {
            let faults = faults(change);
            assert_eq!(faults.len(), 1, "{faults:?}");
            faults.concat()
        };
        let function = one(|c| c.transform.function = "a:b".to_owned());
        assert!(function.contains("can read the file"), "{function}");
        for format in [Format::Npy, Format::Webdataset, Format::Text] {
            let mut config = faults(|c| c.source.format = format);
            config.retain(|fault| fault.contains("which is for JSONL, Parquet"));
            assert_eq!(config.len(), 1);
        }
        let both = one(|c| c.packing.arrays[0].base64 = true);
        assert!(both.contains("remove path or base64"), "{both}");
        let root = one(|c| {
            c.source.root = "data".to_owned();
            c.packing.arrays[0].path = false;
        });
        assert!(root.contains("with path = true only"), "{root}");
    }
}
