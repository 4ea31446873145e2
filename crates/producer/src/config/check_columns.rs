//! Checks of the keys for what is beside tokens: `source.mask`, `packing.extra` and `packing.arrays`.

use std::collections::BTreeSet;

use batchweave_daemon::config::Problem;

use super::{PackingMode, ProducerConfig, SourceContent};
use crate::packing::{ArraySpec, BIN_ARRAYS, Extra, Shape};

impl ProducerConfig {
    /// Adds the contradictions between these columns and other keys.
    pub(super) fn check_columns(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        self.check_column_modes(&mut wrong);
        self.check_column_formats(&mut wrong);
        let several = |spec: &ArraySpec| {
            !spec.shape.is_empty() || spec.base64 || spec.path || spec.has_picture()
        };
        wrong(
            "packing.extra",
            self.packing.extra.iter().any(several),
            "takes one number per document: name and dtype only",
        );
        self.check_array_names(problems);
    }

    /// Checks that the content and the packing mode can have these columns.
    fn check_column_modes(&self, wrong: &mut impl FnMut(&str, bool, &str)) {
        let (source, packing) = (&self.source, &self.packing);
        let (mask, extra) = (!source.mask.is_empty(), !packing.extra.is_empty());
        wrong(
            "source.mask",
            mask && source.content != SourceContent::Ids,
            "is for source.content = \"ids\" only; conversations are marked by their template",
        );
        wrong(
            "source.mask",
            mask && packing.mode == PackingMode::Concat,
            "needs packing.mode = \"best_fit\" or \"balanced\", whose rows hold marks for each token",
        );
        wrong(
            "packing.extra",
            extra && packing.mode == PackingMode::Opaque,
            "is for tokens; with packing.mode = \"opaque\" put the columns in packing.arrays",
        );
    }

    /// Checks that the formats of the sources have fields for these columns.
    fn check_column_formats(&self, wrong: &mut impl FnMut(&str, bool, &str)) {
        let (source, packing) = (&self.source, &self.packing);
        let (mask, extra) = (!source.mask.is_empty(), !packing.extra.is_empty());
        let arrays = !packing.arrays_beside().is_empty();
        let more = self.sources.iter().map(|source| source.format);
        // A function makes columns of anything.
        let function = !self.transform.function.is_empty();
        let mut formats = [source.format]
            .into_iter()
            .chain(more)
            .filter(|_| !function);
        wrong(
            if mask { "source.mask" } else { "packing.extra" },
            (mask || extra) && formats.clone().any(|f| !f.has_fields()),
            "takes fields of JSONL or columns of Parquet and Arrow, and other formats have none",
        );
        wrong(
            "packing.arrays",
            arrays && formats.any(|f| !f.has_fields() && !f.is_shards()),
            "takes fields of JSONL and of tars and columns of Parquet and Arrow, and other formats have none beside tokens",
        );
    }

    /// Checks that each of the arrays has a name of its own.
    fn check_array_names(&self, problems: &mut Vec<Problem>) {
        let arrays = self.packing.arrays_beside().iter();
        let mut taken: BTreeSet<&str> = ["tokens"].into();
        if self.is_balanced() {
            taken.extend(BIN_ARRAYS);
        }
        // Its offsets say which segments are in which row.
        taken.extend(arrays.clone().next().map(|_| "segments"));
        let own = Extra::ALL
            .iter()
            .flat_map(|extra| extra.arrays(Shape::default()));
        taken.extend(own.map(|(name, _, _)| name));
        for spec in &self.packing.extra {
            let fault = if spec.name.is_empty() || spec.name.ends_with(".offsets") {
                "needs names that do not end in \".offsets\"".to_owned()
            } else if !taken.insert(&spec.name) {
                format!("{:?} is the name of another array", spec.name)
            } else {
                continue;
            };
            problems.push(Problem::new("packing.extra", fault));
        }
        let twice = arrays.filter(|spec| taken.contains(&*spec.name));
        problems.extend(twice.take(1).map(|spec| {
            let fault = format!("{:?} is the name of another array", spec.name);
            Problem::new("packing.arrays", fault)
        }));
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::tgb::Dtype;
    use batchweave_daemon::config::Config;

    use super::*;
    use crate::packing::Picture;

    /// Returns the complaints about the columns.
    fn faults(change: impl FnOnce(&mut ProducerConfig)) -> Vec<String> {
        let mut config = ProducerConfig::default();
        config.source.content = SourceContent::Ids;
        config.packing.mode = PackingMode::BestFit;
        change(&mut config);
        let keys = ["source.mask", "packing.extra"];
        let own = config.check().into_iter();
        let own = own.filter(|problem| keys.contains(&problem.key.as_str()));
        own.map(|problem| problem.message).collect()
    }

    fn number(name: &str) -> ArraySpec {
        ArraySpec {
            name: name.to_owned(),
            dtype: Dtype::F32,
            shape: Vec::new(),
            base64: false,
            image: None,
            path: false,
            shortest: None,
            from: String::new(),
        }
    }

    #[test]
    fn columns_beside_ids_are_accepted() {
        let none: [String; 0] = [];
        let all = faults(|config| {
            config.source.mask = "mask".to_owned();
            config.packing.extra = vec![number("reward"), number("version")];
        });
        assert_eq!(all, none);
    }

    #[test]
    fn contradictions_are_named() {
        let one = |change: fn(&mut ProducerConfig), wanted: &str| {
            let found = faults(change);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(wanted), "{found:?}");
        };
        one(
            |config| {
                config.source.content = SourceContent::Text;
                config.source.mask = "mask".to_owned();
            },
            "is for source.content",
        );
        one(
            |config| {
                config.packing.mode = PackingMode::Concat;
                config.source.mask = "mask".to_owned();
            },
            "needs packing.mode",
        );
        one(
            |config| {
                config.source.format = serde_json::from_str("\"npy\"").unwrap();
                config.source.mask = "mask".to_owned();
            },
            "takes fields of JSONL",
        );
        one(
            |config| config.packing.extra = vec![number("reward"), number("reward")],
            "\"reward\" is the name of another array",
        );
        one(
            |config| config.packing.extra = vec![number("cu_seqlens")],
            "\"cu_seqlens\" is the name of another array",
        );
        one(
            |config| {
                config.packing.extra = vec![number("reward")];
                config.packing.extra[0].shape = vec![2];
            },
            "one number per document",
        );
        for change in [
            |spec: &mut ArraySpec| spec.base64 = true,
            |spec: &mut ArraySpec| spec.path = true,
            |spec: &mut ArraySpec| spec.image = Some(Picture::Size),
            |spec: &mut ArraySpec| spec.shortest = Some(8),
        ] {
            let found = faults(|config| {
                config.packing.extra = vec![number("reward")];
                change(&mut config.packing.extra[0]);
            });
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("one number per document"), "{found:?}");
        }
    }
}
