//! Tests of the S3 store: with the embedded server and its injected faults, and with a tiny
//! server of scripted answers.

mod ambiguity;
mod answers;
mod bodies;
mod bounds;
mod bulk;
mod direct_read;
mod inspect;
mod probe;
mod strange;

use std::sync::Arc;

use batchweave_dev_s3::{Options, Server};
use batchweave_store::{AccessKeys, OpenOptions, Store};

/// Opens a store on an endpoint of our own, independent of the environment.
pub(crate) async fn store_at(endpoint: &str, prefix: &str, keys: (&str, &str)) -> Arc<dyn Store> {
    let options = OpenOptions {
        endpoint: Some(endpoint.to_owned()),
        region: Some("us-east-1".to_owned()),
        keys: Some(AccessKeys {
            id: keys.0.to_owned(),
            secret: keys.1.to_owned(),
        }),
        ..Default::default()
    };
    let url = format!("s3://batchweave/{prefix}");
    batchweave_store::open(&url, &options).await.unwrap()
}

/// The embedded server and a store on its bucket.
pub(crate) async fn served(options: Options, prefix: &str) -> (Server, Arc<dyn Store>) {
    let keys = (options.access_key.clone(), options.secret_key.clone());
    let server = Server::start(options).await.unwrap();
    let store = store_at(&server.endpoint(), prefix, (&keys.0, &keys.1)).await;
    (server, store)
}
