//! The steps that a driver may decide by: those of its plan whose states and losses are stored.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_core::drive::{Plan, WindowSums, has_enough};
use batchweave_core::ids::{AttemptId, Step};
use futures::future::BoxFuture;

use crate::followed::{FollowedRun, MissingState};
use crate::losses::RunLosses;

/// Time in which losses are stored, or lost: daemons keep them for 90 s without a store.
const VALUES_WITHIN: Duration = Duration::from_mins(5);

/// The steps of the next decision.
#[derive(Debug)]
pub enum Window {
    /// These steps are needed, and a coordinate has no state of one.
    Unreported(Range<Step>, MissingState),
    /// These steps are needed, and this is the number of the stream's.
    Short(Range<Step>, Step),
    /// States and losses of these steps are stored.
    Ready(WindowLosses),
}

/// The losses of the steps of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowLosses {
    pub steps: Range<Step>,
    pub sums: WindowSums,
    /// Pairs of step and coordinate that were read.
    pub read: u64,
}

/// The windows of a plan that had too few losses when they were looked at.
#[derive(Debug, Default)]
pub struct PassedWindows {
    /// Mixture and attempt of the plan that counts windows.
    plan: (u64, Option<AttemptId>),
    /// The time of the first look at each.
    windows: BTreeMap<u64, Duration>,
    /// The steps that were passed over in the last look: too few of their losses are stored.
    steps: Vec<(Step, Step)>,
}

impl PassedWindows {
    /// Returns the steps that the last look passed over: the first one, and the one after the last.
    pub fn steps(&self) -> &[(Step, Step)] {
        &self.steps
    }

    /// Forgets the windows of another plan.
    fn follow(&mut self, mixture: u64, attempt: Option<AttemptId>) {
        self.steps.clear();
        if self.plan != (mixture, attempt) {
            self.plan = (mixture, attempt);
            self.windows.clear();
        }
    }

    /// Returns whether a window stays without losses: those of its steps have had the time to come.
    fn is_over(&self, n: u64, now: Duration) -> bool {
        let since = self.windows.get(&n);
        since.is_some_and(|since| now.saturating_sub(*since) > VALUES_WITHIN)
    }

    fn join(&mut self, steps: &Range<Step>) {
        match self.steps.last_mut() {
            Some(last) if last.1 == steps.start => last.1 = steps.end,
            _ => self.steps.push((steps.start, steps.end)),
        }
    }
}

impl FollowedRun {
    /// Finds the first window of a plan that has states of all coordinates and enough losses. `now` is the time since any
    /// moment, the same in each look.
    pub fn window<'a>(
        &'a mut self,
        plan: &'a Plan,
        passed: &'a mut PassedWindows,
        now: Duration,
    ) -> BoxFuture<'a, Result<Window, CliError>> {
        Box::pin(async move {
            let newest = self.record()?.attempts.last();
            passed.follow(plan.mixture, newest.map(|attempt| attempt.state.id));
            let head = self.manifest().next_step();
            let mut n = 0;
            loop {
                let steps = plan.steps(n);
                if passed.is_over(n, now) {
                    passed.join(&steps);
                    n += 1;
                    continue;
                }
                if steps.end > head {
                    return Ok(Window::Short(steps, head));
                }
                if let Some(missing) = self.missing(&plan.legs, steps.clone()).await? {
                    return Ok(Window::Unreported(steps, missing));
                }
                let window = self.losses(&plan.legs).await?.window(steps.clone()).await?;
                if has_enough(window.sums.counted, window.read) {
                    return Ok(Window::Ready(window));
                }
                passed.windows.entry(n).or_insert(now);
                passed.join(&steps);
                n += 1;
            }
        })
    }
}

impl RunLosses {
    /// Adds the losses of these steps.
    pub fn window(&self, steps: Range<Step>) -> BoxFuture<'_, Result<WindowLosses, CliError>> {
        Box::pin(async move {
            let mut sums = WindowSums::default();
            self.read(steps.clone(), |of_step| {
                sums.add(&of_step.coordinates);
                Ok(())
            })
            .await?;
            Ok(WindowLosses {
                read: self.read_pairs(&steps),
                steps,
                sums,
            })
        })
    }
}
