//! The `batchweave` binary.
#![forbid(unsafe_code)]

fn main() -> batchweave_daemon::Exit {
    batchweave_daemon::run_to_exit("batchweave", async {
        batchweave_cli::run(std::env::args_os().collect()).await
    })
}
