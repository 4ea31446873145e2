//! The constants of DAC, as chosen by simulation.

use std::time::Duration;

/// Versions lost since the oldest item was ready at which a producer stops racing.
pub(super) const HOT: u32 = 2;
/// A racing producer lists intents at every version that is a multiple of this.
pub(super) const SWEEP_EVERY: u64 = 16;
/// A leader that finds fewer intents per round, on average, steps down: one in four rounds keeps
/// four producers from racing.
pub(super) const OTHERS_MIN: f64 = 0.25;
/// Initial mean of a new leader; with `OTHERS_WEIGHT` it stays for some thirty rounds.
pub(super) const OTHERS_FIRST: f64 = 1.0;
pub(super) const OTHERS_WEIGHT: f64 = 0.05;
/// Polls that show an announced entry passed over before its owner commits it itself.
pub(super) const PASSED_MAX: u32 = 4;
/// Own wins without a foreign record after which a producer takes itself to be alone.
pub(super) const ALONE_AFTER: u32 = 2;
/// A producer that commits nothing for this long is not active. With a shorter time, a stream whose commits
/// fail would look like a quiet one.
pub(super) const ACTIVE_FOR: Duration = Duration::from_secs(30);
/// A leader that the last poll showed is believed to lead for this long without another poll.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(2);
/// A producer that began within this time may be one of hundreds that begin together.
pub(super) const NEW_FOR: Duration = Duration::from_secs(5);
/// A producer races for this long after the store has refused one of its intents.
pub(super) const MUTE_FOR: Duration = Duration::from_secs(10);
/// Candidates that sweep at the same time when many could.
pub(super) const SWEEPERS: u32 = 6;
/// From this number on, active producers don't race, even without a leader.
pub(super) const CROWD: usize = 48;
/// A leader that commits this many other producers' intents in one round expects more such bursts.
pub(super) const BURST: usize = 4;
/// A leader of bursts stays for this long after the last one.
pub(super) const STAY_FOR: Duration = Duration::from_secs(12);
/// The longest interval between rounds during silence.
pub(super) const QUIET_PACE: Duration = Duration::from_millis(200);
/// A silence of this length is not an accident.
pub(super) const QUIET_AFTER: Duration = Duration::from_secs(1);
/// A producer keeps reading the log for this long after its own last item.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(128);
/// An idle producer reads whenever this many records are expected.
pub(super) const READ_ON: f64 = 12.0;
