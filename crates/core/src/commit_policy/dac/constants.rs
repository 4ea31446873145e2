//! The constants of DAC, as the simulator left them.

use std::time::Duration;

/// Versions lost since the oldest item was ready at which a producer stops racing.
pub(super) const HOT: u32 = 2;
/// Every so many versions a producer that races looks for intents nobody took.
pub(super) const SWEEP_EVERY: u64 = 16;
/// A leader that finds fewer intents a round, on average, steps down: one in four rounds keeps
/// four producers from racing.
pub(super) const OTHERS_MIN: f64 = 0.25;
/// What a new leader expects to find; with `OTHERS_WEIGHT` it stays for some thirty rounds.
pub(super) const OTHERS_FIRST: f64 = 1.0;
pub(super) const OTHERS_WEIGHT: f64 = 0.05;
/// Looks that show an announced entry passed over before its owner commits it itself.
pub(super) const PASSED_MAX: u32 = 4;
/// Own wins without a foreign record after which a producer takes itself to be alone.
pub(super) const ALONE_AFTER: u32 = 2;
/// Who has committed nothing for so long is not active. Shorter, and a stream in trouble would look
/// like a quiet one.
pub(super) const ACTIVE_FOR: Duration = Duration::from_secs(30);
/// A leader that was there when we looked last is taken to be there for so long, unheard.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(2);
/// Who has begun so lately may be one of hundreds.
pub(super) const NEW_FOR: Duration = Duration::from_secs(5);
/// How long a producer races after the store has refused an intent of its own.
pub(super) const MUTE_FOR: Duration = Duration::from_secs(10);
/// Candidates that sweep at a time when many could.
pub(super) const SWEEPERS: u32 = 6;
/// So many active producers don't race, even when nobody leads.
pub(super) const CROWD: usize = 48;
/// A leader that has taken so many others' intents at once expects more such bursts:
pub(super) const BURST: usize = 4;
/// it stays for so long after the last,
pub(super) const STAY_FOR: Duration = Duration::from_secs(12);
/// with rounds that come to be so far apart.
pub(super) const QUIET_PACE: Duration = Duration::from_millis(200);
/// A silence that is no accident.
pub(super) const QUIET_AFTER: Duration = Duration::from_secs(1);
/// For so long after its own last item a producer reads on,
pub(super) const IDLE_FOR: Duration = Duration::from_secs(128);
/// whenever so many records should have come.
pub(super) const READ_ON: f64 = 12.0;
