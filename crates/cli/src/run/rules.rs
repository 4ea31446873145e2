//! The reaction to a daemon's end: started again after a bounded pause, or the end of the run.

use std::time::Duration;

use batchweave_daemon::Exit;

/// Pause before the first restart; doubled with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A daemon that worked for this time before it ended starts the count of restarts anew.
const WORKED: Duration = Duration::from_mins(1);
/// Restarts in a row before the run ends.
const RESTARTS_MAX: u32 = 5;

/// The reaction to a daemon's unexpected end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Start it again after `pause`, as number `restarts` in a row.
    Restart { pause: Duration, restarts: u32 },
    /// A restart would end in the same way.
    End(Exit),
}

/// Returns the reaction to an exit code (`None`: killed by a signal), after `lived` and `restarts` in a row.
pub(super) fn react(code: Option<i32>, lived: Duration, restarts: u32) -> Reaction {
    let exit = exit_of(code);
    let restarts = if lived >= WORKED { 0 } else { restarts };
    let hopeless = matches!(
        exit,
        Exit::Config | Exit::BadInput | Exit::StreamRefused | Exit::Fenced | Exit::Protocol
    );
    if hopeless || restarts >= RESTARTS_MAX {
        return Reaction::End(exit);
    }
    let pause = PAUSE_MIN.saturating_mul(1 << restarts).min(PAUSE_MAX);
    let restarts = restarts + 1;
    Reaction::Restart { pause, restarts }
}

/// Returns the meaning of a daemon's exit code; a signal and an unknown code are failures.
pub(super) fn exit_of(code: Option<i32>) -> Exit {
    let all = Exit::ALL.into_iter();
    let mut known = all.filter(|exit| code == Some(i32::from(exit.code())));
    // An end without a request is a failure too.
    let found = known.next().filter(|exit| *exit != Exit::Ok);
    found.unwrap_or(Exit::Failure)
}

/// Returns whether a daemon ended because another program had the address of its status page.
pub(super) fn is_taken(last_words: Option<String>, address: &str) -> bool {
    let says = format!("cannot listen on {address}:");
    last_words.is_some_and(|words| words.contains(&says))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    #[test]
    fn a_daemon_is_started_again_later_and_later_and_not_for_ever() {
        let mut pauses = Vec::new();
        let mut count = 0;
        while let Reaction::Restart { pause, restarts } = react(None, SOON, count) {
            pauses.push(pause.as_secs());
            count = restarts;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16]);
        assert_eq!(
            react(Some(69), SOON, count),
            Reaction::End(Exit::StoreUnavailable)
        );
        assert_eq!(react(Some(137), SOON, count), Reaction::End(Exit::Failure));
        let again = Reaction::Restart {
            pause: PAUSE_MIN,
            restarts: 1,
        };
        assert_eq!(react(Some(1), WORKED, count), again, "it had worked");
    }

    #[test]
    fn an_end_that_would_repeat_itself_ends_the_run_with_its_code() {
        for code in [64, 65, 73, 75, 76] {
            let Reaction::End(exit) = react(Some(code), WORKED, 0) else {
                panic!("{code} is started again");
            };
            assert_eq!(i32::from(exit.code()), code);
        }
        assert!(matches!(react(Some(0), SOON, 0), Reaction::Restart { .. }));
    }

    #[test]
    fn a_daemon_whose_port_another_program_had_is_told_from_others() {
        let words = "admin endpoint cannot listen on 127.0.0.1:9465: Address already in use (os error 98); set \
                     admin.listen to a free address, or \"off\"";
        assert!(is_taken(Some(words.to_owned()), "127.0.0.1:9465"));
        assert!(!is_taken(Some(words.to_owned()), "127.0.0.1:946"));
        assert!(!is_taken(Some("unknown key".to_owned()), "127.0.0.1:9465"));
        assert!(!is_taken(None, "127.0.0.1:9465"));
    }
}
