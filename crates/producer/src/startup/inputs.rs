//! The finder of the configured input.

use std::sync::Arc;

use batchweave_store::{OpenOptions, PathStyle};
use futures::FutureExt;

use crate::config::ProducerConfig;
use crate::sources::{FileRoot, InputFinder, NamedPaths, Portion, Settled, SourceError};

/// Returns the finder for the input. Of input that is followed it accepts only files that have settled, and of those
/// this producer's share.
pub(crate) fn input_finder(config: &ProducerConfig) -> InputFinder {
    let source = &config.source;
    let opener = |input: bool| {
        let (store, own) = (config.store.clone(), source.endpoint.clone());
        let open = move |url: String| {
            let mut options = OpenOptions {
                input,
                ..store.options_of_input(&url)
            };
            // An endpoint of its own is another store.
            if !own.is_empty() {
                options.endpoint = Some(own.clone());
                options.path_style = PathStyle::Auto;
            }
            async move { batchweave_store::open(&url, &options).await }.boxed()
        };
        Arc::new(open)
    };
    let settled = Settled {
        marker: source.settled_marker.clone(),
        age: source.settled_age.0,
    };
    let sources = config.all_sources().into_iter().map(|named| NamedPaths {
        grows: named.grows().then(|| (settled.clone(), share(config))),
        inbox: named.inbox,
        name: named.name,
        paths: named.paths,
    });
    InputFinder {
        sources: sources.collect(),
        open: opener(true),
        open_inbox: opener(false),
    }
}

/// Opens the configured root of the files that documents name; `None` without one.
pub(super) async fn file_root(
    config: &ProducerConfig,
    finder: &InputFinder,
) -> Result<Option<FileRoot>, SourceError> {
    match config.source.root.as_str() {
        "" => Ok(None),
        root => FileRoot::open(root, finder.open.as_ref()).await.map(Some),
    }
}

/// Returns the configured share of the input.
pub(super) fn share(config: &ProducerConfig) -> Portion {
    Portion {
        index: config.producer.index,
        of: config.producer.of,
    }
}
