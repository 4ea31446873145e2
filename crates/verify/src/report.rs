//! The report of a proof: as text, as JSON, and for the picture.

use batchweave_console::CliError;
use batchweave_console::output::{Style, cells, count, fields, joined, or_dash, range, table};
use batchweave_core::ids::{AttemptNo, Step, Version};
use batchweave_core::manifest::entry::{Inherited, Parent};
use batchweave_core::proof::{AttemptRecord, JobRecord, Leg, ProvenLeg};
use serde::Serialize;

use crate::left_behind::LeftBehind;
use crate::listing::JobListing;
use crate::mend::Mended;
use crate::parents::ParentReport;
use crate::training::TrainingReport;

/// The result of proving a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RunReport {
    pub(crate) root: String,
    pub(crate) job: String,
    /// The version that opened it.
    pub(crate) opened: Version,
    pub(crate) closed: Option<Version>,
    pub(crate) watermark: Step,
    /// `proved`, `not proved` or `contradiction`.
    pub(crate) verdict: &'static str,
    pub(crate) contradiction: Option<String>,
    /// The reason why a run without a contradiction is not proved to its end.
    pub(crate) not_proved: Option<String>,
    /// Attempts that gave checkpoints up.
    pub(crate) left_behind: Vec<LeftBehind>,
    /// With --mend: the stored ledgers.
    pub(crate) mended: Option<Mended>,
    /// The first step of the run.
    pub(crate) from: Step,
    pub(crate) to: Step,
    /// Steps that all data coordinates received.
    pub(crate) steps: u64,
    pub(crate) ledgers: u64,
    /// The highest progress and mark of the newest attempt in the lineage.
    pub(crate) progress: Option<Step>,
    pub(crate) mark: Option<Step>,
    /// The end of the steps that the job's checkpoints mark as trained; later ones are received only.
    pub(crate) trained: Option<Step>,
    /// The attempts that led to the final model, oldest first.
    pub(crate) lineage: Vec<LegReport>,
    /// All attempts, for the picture.
    pub(crate) attempts: Vec<AttemptReport>,
    /// With --trained: what ranks reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) training: Option<TrainingReport>,
    /// With --parents: what the streams before a fork have of the run, the nearest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parents: Option<Vec<ParentReport>>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct LegReport {
    pub(crate) attempt: AttemptNo,
    pub(crate) id: String,
    pub(crate) opened: Version,
    pub(crate) from: Step,
    /// The end of the proved steps; `None` when nothing is proved.
    pub(crate) to: Option<Step>,
    pub(crate) dp_size: u32,
    pub(crate) restarted_from: Option<Parent>,
    /// The checkpoint of the parent stream with which a fork's attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inherited: Option<Inherited>,
    pub(crate) proved: bool,
    pub(crate) steps: u64,
    pub(crate) skipped: u64,
    /// Steps, counted per rank: received again, covered by a later entry, trained and discarded.
    pub(crate) again: u64,
    pub(crate) retold: u64,
    pub(crate) thrown_away: u64,
    /// Coordinates beyond the proved steps, with their positions.
    pub(crate) tail: Vec<(u32, Step)>,
    /// Steps that no ledger has, though later ones show them: coordinate, first step, end.
    pub(crate) holes: Vec<(u32, Step, Step)>,
    /// Coordinates whose ledgers end before their progress or marks: coordinate, end, progress or mark.
    pub(crate) unproved: Vec<(u32, Step, Step)>,
}

/// Any attempt, as far as the names of its objects show.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptReport {
    pub(crate) attempt: AttemptNo,
    pub(crate) parent: Option<Parent>,
    pub(crate) start: Step,
    /// The highest step among the names of its marks, progress and ledgers.
    pub(crate) reached: Step,
    pub(crate) dp_size: u32,
    pub(crate) skips: Vec<(Step, Step)>,
    /// Steps of complete checkpoint marks.
    pub(crate) marks: Vec<Step>,
}
impl LegReport {
    pub(crate) fn new(leg: &Leg, attempt: &AttemptRecord) -> Self {
        let state = &attempt.state;
        Self {
            attempt: leg.attempt,
            id: state.id.to_string(),
            opened: state.opened,
            from: leg.from,
            to: leg.to,
            dp_size: state.dp_size,
            restarted_from: state.parent,
            inherited: attempt.inherited,
            ..Self::default()
        }
    }
}

impl RunReport {
    pub(crate) fn new(
        root: &str,
        record: &JobRecord,
        listed: &JobListing,
        watermark: Step,
    ) -> Self {
        let attempt = |a: &AttemptRecord| AttemptReport {
            attempt: a.state.number,
            parent: a.state.parent,
            start: a.state.start,
            reached: listed
                .reached(a.state.number)
                .max(Some(a.state.start))
                .unwrap_or_default(),
            dp_size: a.state.dp_size,
            skips: a.skips.iter().map(|s| (s.start, s.end)).collect(),
            marks: listed.complete_marks(a),
        };
        Self {
            root: root.to_owned(),
            job: record.name.to_string(),
            opened: record.opened,
            closed: record.closed,
            watermark,
            verdict: "proved",
            from: record.start,
            to: record.start,
            ledgers: listed.ledgers.values().map(|all| all.len() as u64).sum(),
            left_behind: LeftBehind::all(record, listed),
            attempts: record.attempts.iter().map(attempt).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.job, self.opened)
    }

    pub(crate) fn note(&mut self, n: usize, proven: ProvenLeg) {
        if self.not_proved.is_none() {
            self.steps += proven.steps;
            self.to = proven.end;
            self.not_proved = hole_text(&proven);
        }
        if let Some(attempt) = self.attempts.get_mut(proven.leg.attempt as usize) {
            let furthest = proven.tail.iter().map(|(_, step)| *step).max();
            let proved = proven.end.max(furthest.unwrap_or_default());
            attempt.reached = attempt.reached.max(proved);
        }
        if let Some(leg) = self.lineage.get_mut(n) {
            leg.to = Some(proven.end);
            leg.proved = proven.holes.is_empty();
            let holes = proven.holes.into_iter();
            leg.holes = holes
                .map(|h| (h.dp_rank, h.steps.start, h.steps.end))
                .collect();
            leg.steps = proven.steps;
            leg.skipped = proven.skipped;
            leg.again = proven.again;
            leg.retold = proven.recorded_again;
            leg.thrown_away = proven.thrown_away;
            leg.tail = proven.tail;
            let unproved = proven
                .unproved
                .iter()
                .map(|u| (u.dp_rank, u.ledgers, u.reached));
            leg.unproved = unproved.collect();
        }
    }

    /// Sets the verdict once no leg contradicts the log.
    pub(crate) fn conclude(&mut self, listed: &JobListing) {
        let Some(last) = self.lineage.last_mut() else {
            return;
        };
        (self.progress, self.mark) = listed.shown(last.attempt);
        let own = self.attempts.iter().find(|a| a.attempt == last.attempt);
        let marks = own.into_iter().flat_map(|a| &a.marks).copied();
        let stated = marks.chain(self.trained).max();
        self.trained = stated.map(|step| step.min(self.to));
        if let Some(&(dp_rank, end, reached)) = last.unproved.first() {
            last.proved = false;
            let others = and_others(last.unproved.len() - 1);
            let why = || {
                format!(
                    "coordinate {dp_rank} of attempt {} came to step {reached} by its progress or marks, but its \
                     ledgers end at step {end}{others}: some are missing or not stored yet; while the data is there \
                     --mend stores what its indexes say, and --to {} proves what is before",
                    last.attempt, self.to
                )
            };
            self.not_proved.get_or_insert_with(why);
        } else if self.steps == 0 && self.not_proved.is_none() {
            let why = "no ledger tells of any step, and there is no progress and no mark either";
            self.not_proved = Some(why.to_owned());
        }
        if self.not_proved.is_some() {
            self.verdict = "not proved";
        }
    }

    pub(crate) fn text(&self, style: Style) -> String {
        let state = match self.closed {
            None => "open".to_owned(),
            Some(version) => format!("closed by version {version}"),
        };
        let others = match self.attempts.len() - self.lineage.len() {
            0 => String::new(),
            1 => "; 1 attempt has no part in the final model".to_owned(),
            n => format!("; {n} attempts have no part in the final model"),
        };
        let lineage = count(self.lineage.len() as u64, "attempt");
        let mut text = fields(&[
            ("root", self.root.clone()),
            ("job", format!("{}, {state}", self.name())),
            ("lineage", format!("{lineage}{others}")),
        ]);
        let header = "ATTEMPT|FROM|TO|WORLD|STEPS|SKIPPED|RESTARTED FROM|PROVED";
        let rows = self.lineage.iter().map(LegReport::row);
        text += &table(style, &header.split('|').collect::<Vec<_>>(), rows);
        for leg in self.lineage.iter().filter(|leg| !leg.tail.is_empty()) {
            let tail = leg.tail.iter().map(|(c, step)| format!("{c} at {step}"));
            let line = format!(
                "attempt {} ends unevenly: what is behind step {} is not proved; further are coordinates {}\n",
                leg.attempt,
                self.to,
                joined(tail, "")
            );
            text += &style.yellow(&line);
        }
        for left in &self.left_behind {
            text += &style.yellow(&left.text());
        }
        if let Some(mended) = &self.mended {
            text += &mended.text();
        }
        let verdict = match (&self.contradiction, &self.not_proved) {
            (None, None) => style.green(&format!(
                "proved: steps {}, {} in all, each received by every data coordinate exactly once, in \
                 order, with the bytes that the log names; {}",
                range(self.from, self.to),
                self.steps,
                self.compared(),
            )),
            (Some(why), _) => style.red(&format!("NOT PROVED: {why}")),
            (None, Some(why)) => style.red(&format!(
                "NOT PROVED behind step {}: {why}; before it {} steps agree; {}",
                self.to,
                self.steps,
                self.compared(),
            )),
        };
        let parents = match self.parents.as_deref() {
            None => String::new(),
            Some([]) => "\nthe stream has no parent".to_owned(),
            Some(all) => {
                let parts: String = all.iter().map(|parent| parent.text(style)).collect();
                parts + &self.whole(all, style)
            }
        };
        text + &verdict + &self.training(style) + &parents
    }

    /// Says what is proved over all streams; nothing where some part is not.
    fn whole(&self, parents: &[ParentReport], style: Style) -> String {
        let runs: Vec<&Self> = parents.iter().filter_map(|p| p.run.as_ref()).collect();
        let Some(first) = runs.last().filter(|_| self.fault().is_none()) else {
            return String::new();
        };
        let steps = self.steps + runs.iter().map(|run| run.steps).sum::<u64>();
        let (from, streams) = (first.from, runs.len() + 1);
        let whole = format!(
            "\n\nthe whole run is proved: steps {}, {steps} in all, over {streams} streams",
            range(from, self.to)
        );
        style.green(&whole)
    }

    /// Returns the first fault of the run and of its parts in parent streams.
    pub(crate) fn fault(&self) -> Option<CliError> {
        let named = |why: &String| format!("job {} of {}: {why}", self.name(), self.root);
        if let Some(why) = &self.contradiction {
            return Some(CliError::Unsound(named(why)));
        }
        let parents = || self.parents.iter().flatten();
        let inner: Vec<_> = parents().filter_map(|p| p.run.as_ref()?.fault()).collect();
        let untrained = self.training.as_ref().and_then(|t| t.not_trained.as_ref());
        let own = self.not_proved.as_ref().or(untrained);
        let own = own.map(|why| CliError::NotProved(format!("not proved: {}", named(why))));
        let unread = parents().find_map(|p| p.fault().map(CliError::NotProved));
        let (unsound, open): (Vec<_>, Vec<_>) = inner
            .into_iter()
            .partition(|why| matches!(why, CliError::Unsound(_)));
        unsound
            .into_iter()
            .chain(own)
            .chain(open)
            .chain(unread)
            .next()
    }

    /// Says which of the received steps were trained, as far as the job reported it.
    fn training(&self, style: Style) -> String {
        if self.contradiction.is_some() || self.steps == 0 {
            return String::new();
        }
        if let Some(training) = &self.training {
            return training.text(self.from, style);
        }
        match self.trained.filter(|trained| *trained > self.from) {
            None => "\nno checkpoint of the job marks a received step as trained".to_owned(),
            Some(marked) if marked == self.to => format!(
                "\nall of them are marked as trained, by the checkpoint at step {marked}: that is the trainer's word, and no proof"
            ),
            Some(marked) => format!(
                "\nsteps {} are marked as trained, by the checkpoint at step {marked}: that is the trainer's word, and no \
                 proof; later ones are received only",
                range(self.from, marked)
            ),
        }
    }

    fn compared(&self) -> String {
        let shown = |step: Option<Step>| step.map_or("none".to_owned(), |s| format!("to step {s}"));
        format!(
            "compared: {} with the digests in the log, progress {}, marks {}",
            count(self.ledgers, "ledger"),
            shown(self.progress),
            shown(self.mark),
        )
    }
}

/// Says which steps have no ledger, and the remedy; `None` without holes.
fn hole_text(proven: &ProvenLeg) -> Option<String> {
    let first = proven.holes.first()?;
    let mut others: Vec<u32> = proven.holes.iter().map(|hole| hole.dp_rank).collect();
    others.sort_unstable();
    others.dedup();
    Some(format!(
        "gap: coordinate {} of attempt {} received steps {}, by what followed, but no ledger has them{}: they were not \
         stored, or are deleted; while the data is there --mend stores what its indexes say, and --to {} proves what \
         is before",
        first.dp_rank,
        proven.leg.attempt,
        range(first.steps.start, first.steps.end),
        and_others(others.len() - 1),
        proven.end
    ))
}

fn and_others(count_of: usize) -> String {
    match count_of {
        0 => String::new(),
        n => format!(" (and {} more)", count(n as u64, "coordinate")),
    }
}

impl LegReport {
    fn row(&self) -> Vec<String> {
        let (parent, leg) = (self.restarted_from, self);
        let own = parent.map(|p| format!("attempt {}, step {}", p.attempt, p.step));
        let inherited = |from: Inherited| {
            let Inherited { attempt, step, .. } = from;
            format!("attempt {attempt} of the parent, step {step}")
        };
        let parent = or_dash(own.or(self.inherited.map(inherited)));
        let (to, proved) = (or_dash(leg.to), if leg.proved { "yes" } else { "no" });
        cells![
            leg.attempt,
            leg.from,
            to,
            leg.dp_size,
            leg.steps,
            leg.skipped,
            parent,
            proved
        ]
    }
}
