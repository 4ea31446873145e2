//! What verbs work with: the store that was named, and where results go.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_log::{Log, LogOptions};
use batchweave_store::{
    Encryption, ErrorKind, ObjectMeta, OpenOptions, Patience, Store, StoreError, list_all,
};

use crate::error::CliError;
use crate::global::GlobalArgs;
use crate::output::Output;

const STORE_VARIABLE: &str = "BATCHWEAVE_STORE";
/// So long a person looks at nothing.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Context {
    global: GlobalArgs,
    /// Where results go.
    pub out: Output,
}

impl Context {
    pub fn new(global: GlobalArgs) -> Self {
        let out = Output::to_stdout(global.json);
        Self { global, out }
    }

    /// What --store names, as it stands on the command line.
    pub fn store_option(&self) -> Option<&str> {
        self.global.store.as_deref()
    }

    /// Whether results are JSON.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// The root that the command line or the environment names.
    pub fn url(&self) -> Result<String, CliError> {
        let variable = || std::env::var(STORE_VARIABLE).ok();
        let given = self.global.store.clone().or_else(variable);
        given.filter(|url| !url.is_empty()).ok_or_else(|| {
            CliError::Usage(format!(
                "no store: name the stream's root with --store URL or in {STORE_VARIABLE} \
                 (s3://bucket/prefix or file:///dir)"
            ))
        })
    }

    /// What the command line says of how to reach a store.
    pub fn store_options(&self) -> OpenOptions {
        OpenOptions {
            endpoint: self.global.endpoint.clone(),
            region: self.global.region.clone(),
            profile: self.global.profile.clone(),
            ..OpenOptions::default()
        }
    }

    /// Opens the store; `create` makes the folder of a `file://` root.
    pub async fn store(&self, create: bool) -> Result<Arc<dyn Store>, CliError> {
        let options = OpenOptions {
            create,
            encryption: encryption()?,
            ..self.store_options()
        };
        let url = self.url()?;
        if url.starts_with("s3://") {
            first_contact(&url, &options).await?;
        }
        Ok(batchweave_store::open(&url, &options).await?)
    }
}

/// Whether anybody answers at all: with few and short tries, since a person waits. What is answered is
/// for the verb to judge, and its own requests are as patient as a daemon's.
async fn first_contact(url: &str, options: &OpenOptions) -> Result<(), StoreError> {
    let options = OpenOptions {
        patience: Patience::Short,
        ..options.clone()
    };
    let store = batchweave_store::open(url, &options).await?;
    let mut asking = store.get(keys::STREAM, keys::bytes_max(keys::STREAM));
    let answer = tokio::select! {
        biased;
        answer = &mut asking => answer,
        () = tokio::time::sleep(SILENCE) => {
            eprintln!("{url} does not answer yet; still waiting");
            asking.await
        }
    };
    match answer {
        Err(error) if is_silence(error.kind) => Err(error),
        _ => Ok(()),
    }
}

/// Nobody was there, or what was there gave no answer of a store.
fn is_silence(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Untrusted
    )
}

/// What writes ask S3 for, as `store.encryption` and `store.kms_key` of the daemons.
fn encryption() -> Result<Encryption, CliError> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let mode = variable("BATCHWEAVE_ENCRYPTION");
    Encryption::parse(&mode, &variable("BATCHWEAVE_KMS_KEY"))
        .map_err(|why| CliError::Usage(format!("BATCHWEAVE_ENCRYPTION: {why}")))
}

/// Folds the stream at the store's root to its head, without writing anything.
pub(crate) async fn open_log(store: Arc<dyn Store>) -> Result<Log, CliError> {
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    Ok(Log::open(store, &options).await?)
}

/// Everything below `prefix`, sorted by key.
pub async fn list(store: &dyn Store, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
    let mut objects = Vec::new();
    list_all(store, prefix, |object| objects.push(object)).await?;
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(objects)
}
