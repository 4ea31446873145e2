//! `batchweave dev-s3`: the S3 server for tests, demos and laptops, from its own crate.

use batchweave_daemon::Exit;
use batchweave_dev_s3::DevS3Args;

use batchweave_console::CliError;
use batchweave_console::context::Context;

pub(crate) async fn run(mut args: DevS3Args, context: &Context) -> Result<Exit, CliError> {
    // The server has its own --json; the global one before the verb means the same.
    args.json |= context.out.json;
    let served = batchweave_dev_s3::run(args).await;
    served.map_err(|e| CliError::Failed(e.to_string()))?;
    Ok(Exit::Ok)
}
