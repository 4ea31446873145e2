//! fastokens spreads one long text over a pool of its own threads, which only competes with ours:
//! we tokenize whole documents in parallel. Its only switch is an environment variable, read once at
//! first use, and setting that in a running process is unsafe. But the pool also never has more
//! threads than the CPUs its first caller may run on: so the first call is made from a thread that
//! is bound to one CPU.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Call before the first use of fastokens. Where binding is forbidden (a seccomp filter, say) the
/// pool starts after all: slower, not wrong.
pub(super) fn keep_fastokens_on_the_calling_thread() {
    let bind = || bind_to_one_cpu().is_ok_and(|()| fastokens::fanout::threads() == 1);
    let bound = std::thread::Builder::new().spawn(bind);
    if !bound.is_ok_and(|bound| bound.join().unwrap_or(false)) {
        tracing::debug!("fastokens keeps its own thread pool");
    }
}

fn bind_to_one_cpu() -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(first) = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)) {
        one.set(first);
    }
    sched_setaffinity(None, &one)
}
