//! Keeps fastokens from starting threads. fastokens spreads a long text over a pool of its own threads, which
//! competes with the tokenizing threads of the producer. Its only switch is an environment variable, which is read
//! at the first use and unsafe to set in a running process. But the pool has at most one thread per CPU that its
//! first caller may run on, so the first call is made from a thread that is bound to one CPU.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Must be called before the first use of fastokens. Where binding is forbidden, for example by a seccomp filter,
/// the pool starts nevertheless, which is slower and not wrong.
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
