//! `batchweave dev-s3`: the S3 server for tests, demos and laptops, in its own crate.

use batchweave_daemon::Exit;
use batchweave_dev_s3::DevS3Args;

use crate::context::Context;
use crate::error::CliError;

pub(crate) async fn run(mut args: DevS3Args, context: &Context) -> Result<Exit, CliError> {
    // The server has a --json of its own; the one before the verb means the same.
    args.json |= context.out.json;
    batchweave_dev_s3::run(args).await?;
    Ok(Exit::Ok)
}
