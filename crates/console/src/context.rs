//! The context of a verb: the store that the command line names, and the output.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_daemon::Exit;
use batchweave_log::{Log, LogOptions};
use batchweave_store::{
    Encryption, ErrorKind, Location, ObjectMeta, OpenOptions, Patience, Store, StoreError,
    list_all, root_url,
};
use futures::future::BoxFuture;
use serde::Serialize;

use crate::absent_twice::AbsentTwice;
use crate::error::CliError;
use crate::global::GlobalArgs;
use crate::output::{Output, Style};

const STORE_VARIABLE: &str = "BATCHWEAVE_STORE";
/// Time without an answer after which a message appears.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The global options of a command line, and the output.
#[derive(Debug)]
pub struct Context {
    global: GlobalArgs,
    /// The destination of results.
    pub out: Output,
}

impl Context {
    /// Returns the context for these global options.
    pub fn new(mut global: GlobalArgs) -> Self {
        global.store = global.store.map(|given| root_url(&given).into_owned());
        let out = Output::to_stdout(global.json);
        Self { global, out }
    }

    /// Returns the context of a verb that takes the root as an argument, too.
    pub fn at(&self, root: Option<&str>) -> Result<Self, CliError> {
        let mut global = self.global.clone();
        if let Some(root) = root {
            let root = &*root_url(root);
            let other = global.store.replace(root.to_owned());
            if let Some(other) = other.filter(|other| other != root) {
                return Err(CliError::Usage(format!(
                    "two roots: {root} and --store {other}; give one"
                )));
            }
        }
        Ok(Self::new(global))
    }

    /// Returns the global options of the command line.
    pub fn global(&self) -> &GlobalArgs {
        &self.global
    }

    /// Returns the value of `--store` on the command line.
    pub fn store_option(&self) -> Option<&str> {
        self.global.store.as_deref()
    }

    /// Returns whether results are printed as JSON.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// Returns the root that the command line or the environment names; an error when neither does.
    pub fn url(&self) -> Result<String, CliError> {
        let variable = || std::env::var(STORE_VARIABLE).ok();
        let given = self
            .global
            .store
            .clone()
            .or_else(variable)
            .filter(|url| !url.is_empty());
        given.map(|url| root_url(&url).into_owned()).ok_or_else(|| {
            CliError::Usage(format!(
                "no store: name the stream's root with --store URL or in {STORE_VARIABLE} \
                 (s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///dir)"
            ))
        })
    }

    /// Returns the endpoint, region and profile of the command line as options of a store.
    pub fn store_options(&self) -> OpenOptions {
        OpenOptions {
            endpoint: self.global.endpoint.clone(),
            region: self.global.region.clone(),
            profile: self.global.profile.clone(),
            path_style: self.global.path_style,
            ..OpenOptions::default()
        }
    }

    /// Opens the store; `create` also creates the folder of a `file://` root.
    pub async fn store(&self, create: bool) -> Result<Arc<dyn Store>, CliError> {
        Ok(Arc::new(AbsentTwice(self.polled_store(create).await?)))
    }

    /// Opens the store for a caller that reads an absent object again later.
    pub fn polled_store(&self, create: bool) -> BoxFuture<'_, Result<Arc<dyn Store>, CliError>> {
        Box::pin(async move {
            let options = OpenOptions {
                create,
                encryption: encryption()?,
                ..self.store_options()
            };
            let url = self.url()?;
            if Location::parse(&url).is_ok_and(Location::is_remote) {
                check_answer(&url, &options).await?;
            }
            Ok(batchweave_store::open(&url, &options).await?)
        })
    }

    /// Opens the store, and its log as [`open_log`] does.
    pub async fn log(&self) -> Result<Log, CliError> {
        open_log(self.store(false).await?).await
    }

    /// Opens the log for a caller that follows it.
    pub async fn followed_log(&self) -> Result<Log, CliError> {
        open_log(self.polled_store(false).await?).await
    }

    /// Prints the report of a successful verb.
    pub fn done<R: Serialize>(
        &self,
        report: &R,
        text: impl FnOnce(&R, Style) -> String,
    ) -> Result<Exit, CliError> {
        self.out.report(report, text)?;
        Ok(Exit::Ok)
    }
}

/// Checks with few and short tries that the store answers, since a person waits. The verb handles the
/// answer, and its own requests are retried as long as a daemon's.
async fn check_answer(url: &str, options: &OpenOptions) -> Result<(), StoreError> {
    let options = OpenOptions {
        patience: Patience::Short,
        ..options.clone()
    };
    let store = batchweave_store::open(url, &options).await?;
    let mut get = store.get(keys::STREAM, keys::bytes_max(keys::STREAM));
    let answer = tokio::select! {
        biased;
        answer = &mut get => answer,
        () = tokio::time::sleep(NOTICE_AFTER) => {
            eprintln!("{url} has not answered yet; still waiting");
            get.await
        }
    };
    use ErrorKind::{Timeout, Unreachable, Untrusted};
    match answer {
        Err(error) if matches!(error.kind, Unreachable | Timeout | Untrusted) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the encryption that writes request, as `store.encryption` and `store.kms_key` of the daemons.
fn encryption() -> Result<Encryption, CliError> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let mode = variable("BATCHWEAVE_ENCRYPTION");
    Encryption::parse(&mode, &variable("BATCHWEAVE_KMS_KEY"))
        .map_err(|why| CliError::Usage(format!("BATCHWEAVE_ENCRYPTION: {why}")))
}

/// Folds the stream at the store's root to its head, without writing anything.
pub async fn open_log(store: Arc<dyn Store>) -> Result<Log, CliError> {
    Ok(Log::open(store, &read_only()).await?)
}

/// Returns the options of a log that writes no snapshots.
pub fn read_only() -> LogOptions {
    LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    }
}

/// Returns the version after the newest, from the newest snapshot and a short fold.
pub async fn next_version(store: &Arc<dyn Store>) -> Result<Version, CliError> {
    let head = open_log(Arc::clone(store)).await?;
    Ok(head.manifest().next_version())
}

/// Returns all objects below `prefix`, sorted by key.
pub fn list<'a>(
    store: &'a dyn Store,
    prefix: &'a str,
) -> BoxFuture<'a, Result<Vec<ObjectMeta>, StoreError>> {
    Box::pin(async move {
        let mut objects = Vec::new();
        list_all(store, prefix, |object| objects.push(object)).await?;
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(objects)
    })
}
