//! What verbs work with: the store that was named, and where results go.

use std::sync::Arc;

use batchweave_log::{Log, LogOptions};
use batchweave_store::{Encryption, ObjectMeta, OpenOptions, Store, StoreError};

use crate::args::GlobalArgs;
use crate::error::CliError;
use crate::output::Output;

const STORE_VARIABLE: &str = "BATCHWEAVE_STORE";

#[derive(Debug)]
pub(crate) struct Context {
    global: GlobalArgs,
    /// Where results go.
    pub(crate) out: Output,
}

impl Context {
    pub(crate) fn new(global: GlobalArgs) -> Self {
        let out = Output::to_stdout(global.json);
        Self { global, out }
    }

    /// What --store names, as it stands on the command line.
    pub(crate) fn store_option(&self) -> Option<&str> {
        self.global.store.as_deref()
    }

    /// Whether results are JSON.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// The root that the command line or the environment names.
    pub(crate) fn url(&self) -> Result<String, CliError> {
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
    pub(crate) fn store_options(&self) -> OpenOptions {
        OpenOptions {
            endpoint: self.global.endpoint.clone(),
            region: self.global.region.clone(),
            profile: self.global.profile.clone(),
            ..OpenOptions::default()
        }
    }

    /// Opens the store; `create` makes the folder of a `file://` root.
    pub(crate) async fn store(&self, create: bool) -> Result<Arc<dyn Store>, CliError> {
        let options = OpenOptions {
            create,
            encryption: encryption()?,
            ..self.store_options()
        };
        Ok(batchweave_store::open(&self.url()?, &options).await?)
    }
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
pub(crate) async fn list(store: &dyn Store, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
    let (mut objects, mut page) = (Vec::new(), None);
    loop {
        let listed = store.list(prefix, page).await?;
        objects.extend(listed.objects);
        page = listed.next;
        if page.is_none() {
            break;
        }
    }
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(objects)
}
