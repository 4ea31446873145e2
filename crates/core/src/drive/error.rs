//! Why a decision is impossible, and what to do.

/// The reason why a decision is impossible.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DriveError {
    #[error(
        "floor {floor}, ceiling {ceiling} and step bound {step} must be above 0 and at most 1, the floor at most the ceiling"
    )]
    Bounds { floor: f64, ceiling: f64, step: f64 },
    #[error(
        "{sources} sources cannot all have shares from {floor} to {ceiling}; change floor or ceiling"
    )]
    Infeasible {
        sources: usize,
        floor: f64,
        ceiling: f64,
    },
    #[error("no source has a token with a loss in these steps")]
    NoSource,
    #[error("the share of source {0} by the weights in force is not a number from 0 to 1")]
    BadShare(String),
    #[error("the sources with tokens have no share by the weights in force; set a mixture")]
    NoShare,
    #[error("source {0} has no target; name one for each source")]
    NoTarget(String),
    #[error("no source is named {0}; remove its target")]
    StrangeTarget(String),
    #[error("the target of source {0} must be a finite number above 0")]
    BadTarget(String),
    #[error(
        "source {0} has a loss of 0 or less, of which a ratio has no meaning; use another rule"
    )]
    NoRatio(String),
    #[error("the function gave no weight for source {0}")]
    NoAnswer(String),
    #[error("the function gave a weight for {0}, which is not a source with tokens in these steps")]
    StrangeAnswer(String),
    #[error("the function gave source {0} a weight that is not a finite number of at least 0")]
    BadAnswer(String),
    #[error("the function gave all sources the weight 0")]
    ZeroAnswer,
    #[error(
        "ranks reported losses of source number {0}, which no producer has; check the `sources` that they report"
    )]
    StrangeSource(u16),
    #[error("rule {0:?} is of a later release; upgrade this program")]
    UnknownRule(String),
    #[error("the losses of source {0} are too large to compute a share")]
    Overflow(String),
}
