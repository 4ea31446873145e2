//! The `batchweave-lab` binary.
#![forbid(unsafe_code)]

fn main() -> batchweave_daemon::Exit {
    batchweave_daemon::run_to_exit("batchweave-lab", async {
        batchweave_lab::run(std::env::args_os().collect()).await
    })
}
