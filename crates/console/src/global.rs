//! The options that all verbs share.

use batchweave_store::PathStyle;

/// Options that every verb accepts, before or after its name.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Root of the stream: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///dir, /dir or ./dir
    /// [default: $BATCHWEAVE_STORE]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Endpoint of the store, instead of AWS_ENDPOINT_URL or the other clouds' variables
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
    /// S3 region, instead of AWS_REGION or the profile's
    #[arg(long, global = true, value_name = "NAME")]
    pub region: Option<String>,
    /// AWS profile, instead of AWS_PROFILE
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// Whether S3 requests name the bucket in the path: `store.path_style` of a file of `batchweave run`.
    #[arg(skip)]
    pub path_style: PathStyle,
    /// Print JSON instead of text: one object, or one per line of verbs that follow
    #[arg(long, global = true)]
    pub json: bool,
}
