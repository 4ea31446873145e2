//! The exit codes of all programs. Supervisors and scripts rely on them, so a number never changes its
//! meaning.

use std::process::{ExitCode, Termination};

use batchweave_log::LogError;
use batchweave_store::{ErrorKind, StoreError};

/// The reason why a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success, or stopped on request.
    Ok,
    /// A failure without a code of its own; the message names it.
    Failure,
    /// Wrong command line or configuration; a restart does not help.
    Config,
    /// Unusable input data: a bad document, a missing file.
    BadInput,
    /// `verify --job` found no contradiction, but ledgers are missing: the run is not proved to its end.
    NotProved,
    /// The store does not answer or denies access; a later restart may help.
    StoreUnavailable,
    /// A bug of the program: a panic, or a lost thread.
    Internal,
    /// The store or stream is unusable: creates are not exclusive, the root holds something else, or
    /// the stream has other parameters.
    StreamRefused,
    /// A newer instance of this producer has taken over. Do not restart.
    Fenced,
    /// A stored object breaks the protocol: a damaged record, an unknown format, a gap.
    Protocol,
}

impl Exit {
    /// Every code with its meaning, for help texts and docs.
    pub const ALL: [Exit; 10] = [
        Self::Ok,
        Self::Failure,
        Self::Config,
        Self::BadInput,
        Self::NotProved,
        Self::StoreUnavailable,
        Self::Internal,
        Self::StreamRefused,
        Self::Fenced,
        Self::Protocol,
    ];

    /// Returns the code of a store's error: a store that breaks the contract is refused, an invalid root or
    /// key is a fault of the configuration, and for anything else the store counts as unavailable.
    pub const fn for_store(error: &StoreError) -> Self {
        match error.kind {
            ErrorKind::Contract => Self::StreamRefused,
            ErrorKind::Invalid => Self::Config,
            _ => Self::StoreUnavailable,
        }
    }

    /// Returns the code of a log's error: a root without the expected stream is refused, and anything but a
    /// failure of the store breaks the protocol.
    pub const fn for_log(error: &LogError) -> Self {
        match error {
            LogError::Store(error) => Self::for_store(error),
            LogError::NoStream { .. }
            | LogError::RootInUse { .. }
            | LogError::OtherStream { .. } => Self::StreamRefused,
            _ => Self::Protocol,
        }
    }

    /// Returns the process's exit code (64 to 78 as in sysexits.h, where one fits).
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Config => 64,
            Self::BadInput => 65,
            Self::NotProved => 66,
            Self::StoreUnavailable => 69,
            Self::Internal => 70,
            Self::StreamRefused => 73,
            Self::Fenced => 75,
            Self::Protocol => 76,
        }
    }

    /// Returns the meaning in one line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success, or stopped on request",
            Self::Failure => "failure; the message says what",
            Self::Config => "wrong command line or configuration",
            Self::BadInput => "input data that can't be used",
            Self::NotProved => "a run is not proved to its end: ledgers are missing",
            Self::StoreUnavailable => "the store does not answer or denies access",
            Self::Internal => "a fault of the program (a panic); please report it",
            Self::StreamRefused => "store or stream refused (not exclusive, or other parameters)",
            Self::Fenced => "fenced: a newer instance of this producer has taken over",
            Self::Protocol => "stored objects break the protocol",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn every_code_is_its_own() {
        let mut codes: Vec<u8> = Exit::ALL.iter().map(|e| e.code()).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 1, 64, 65, 66, 69, 70, 73, 75, 76]);
    }
}
