//! Stores a fork: the tokenizer file, the input lists, the state, and last `stream.json`, each by a create-only put.
//! All but the last have the same bytes whenever the command runs, so that one that was killed is run again.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::StreamId;
use batchweave_core::keys;
use batchweave_core::stream::{ParentStream, StreamConfig};
use batchweave_store::{Store, found, list_all};
use bytes::Bytes;

use super::{ForkError, ForkPlan};
use crate::clock::TokioClock;
use crate::commit::resolve::{self, Resolved};
use crate::error::LogError;
use crate::read::fitting::get_fitting;

/// The outcome of [`make_fork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    Created(StreamConfig),
    /// The same fork was there.
    Existed(StreamConfig),
}

/// Stores the fork `plan` at the root of `store`, as stream `id`. Fails when the root holds anything else than this fork
/// or its beginning.
pub async fn make_fork(
    store: &Arc<dyn Store>,
    plan: &ForkPlan,
    id: StreamId,
    created: String,
) -> Result<Made, ForkError> {
    if let Some(there) = existing(store, &plan.parent).await? {
        return Ok(there);
    }
    let objects = plan.objects();
    if let Some(other) = foreign(store, &objects).await? {
        // The same fork may have been finished meanwhile.
        if let Some(there) = existing(store, &plan.parent).await? {
            return Ok(there);
        }
        return Err(in_use(store, &format!("another object ({other})")));
    }
    let clock = TokioClock::shared();
    for (key, bytes) in objects.tokenizer.into_iter().chain(objects.rest) {
        let body = bytes.clone();
        match resolve::put(store.as_ref(), clock.as_ref(), &key, body).await? {
            Resolved::Ours => {}
            Resolved::Theirs(_) => {
                let found = format!(
                    "the beginning of another fork ({key} has other bytes; delete that object to make this one)"
                );
                return Err(in_use(store, &found));
            }
        }
    }
    let mut stream = plan.stream.clone();
    stream.stream_id = id;
    stream.created = created;
    stream.parent = Some(plan.parent.clone());
    stream.format = stream.own_format();
    let rule = |reason| {
        LogError::from(batchweave_core::error::FormatError::rule(
            keys::STREAM,
            reason,
        ))
    };
    stream.check().map_err(rule)?;
    let body = Bytes::from(stream.to_json());
    match resolve::put(store.as_ref(), clock.as_ref(), keys::STREAM, body).await? {
        Resolved::Ours => Ok(Made::Created(stream)),
        Resolved::Theirs(_) => {
            let there = existing(store, &plan.parent).await?;
            there.ok_or_else(|| in_use(store, "another stream"))
        }
    }
}

/// The objects of a fork without `stream.json`.
struct Objects {
    tokenizer: Option<(String, Bytes)>,
    /// The links of input lists, and the state after them.
    rest: Vec<(String, Bytes)>,
}

impl ForkPlan {
    fn objects(&self) -> Objects {
        let key = keys::tokenizer(&self.stream.tokenizer.fingerprint);
        let mut rest = self.links.clone();
        rest.push((keys::FORK.to_owned(), self.state.to_json().into()));
        Objects {
            tokenizer: self.tokenizer.clone().map(|bytes| (key, bytes)),
            rest,
        }
    }
}

/// Returns the fork that is there; an error where another stream is.
async fn existing(
    store: &Arc<dyn Store>,
    parent: &ParentStream,
) -> Result<Option<Made>, ForkError> {
    let parse = |bytes: &Bytes| StreamConfig::from_json(bytes, keys::STREAM);
    let Some(read) = found(get_fitting(store.as_ref(), keys::STREAM, parse).await)? else {
        return Ok(None);
    };
    let stream = read.map_err(LogError::from)?;
    // The parent may be known by another URL.
    let same = stream.parent.as_ref().is_some_and(|there| {
        let root = parent.root.clone();
        ParentStream {
            root,
            ..there.clone()
        } == *parent
    });
    if same {
        return Ok(Some(Made::Existed(stream)));
    }
    Err(in_use(store, &format!("stream {}", stream.stream_id)))
}

/// Returns the key of an object that is not of this fork, if there is one.
async fn foreign(store: &Arc<dyn Store>, objects: &Objects) -> Result<Option<String>, ForkError> {
    let own = objects.tokenizer.iter().chain(&objects.rest);
    let own: BTreeSet<&str> = own.map(|(key, _)| key.as_str()).collect();
    let mut other = None;
    list_all(store.as_ref(), "", |object| {
        if other.is_none()
            && !own.contains(object.key.as_str())
            && !object.key.starts_with("probe/")
        {
            other = Some(object.key);
        }
    })
    .await?;
    Ok(other)
}

fn in_use(store: &Arc<dyn Store>, found: &str) -> ForkError {
    ForkError::RootInUse {
        root: store.root().to_owned(),
        found: found.to_owned(),
    }
}
