//! The text of the line on the terminal, and of the lines of the status page.

use batchweave_daemon::figures::{grouped, period, short};
use batchweave_daemon::live_line::{append, head, room, tail};

use super::rate::Speeds;
use super::{InputPosition, SourcePosition};

/// Cells of the bar, and of that on a terminal with at least `WIDE` columns.
const BAR: usize = 10;
const BAR_WIDE: usize = 24;
const WIDE: usize = 150;
/// Below this many columns the producer's name and the batches give way to the place in the input.
const NARROW: usize = 100;
/// Fewest columns worth a part of a file's name.
const NAME_MIN: usize = 8;

/// The figures that the line shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct View {
    pub(super) producer: String,
    pub(super) input: Option<InputPosition>,
    pub(super) speeds: Option<Speeds>,
    /// Bytes per second of each source of several.
    pub(super) of_sources: Vec<Option<f64>>,
    pub(super) documents: u64,
    pub(super) tokens: u64,
    /// Batches of this producer in the stream.
    pub(super) batches: u64,
    /// Why it does not produce now, if so.
    pub(super) hindered: Option<String>,
    /// The share of `producer.limit` that is done; `None` without a limit.
    pub(super) of_limit: Option<f64>,
    /// The evenness of bins of equal cost, in words.
    pub(super) balance: Option<String>,
}

impl View {
    /// Returns the share of the run that is done, by the bytes of the input that is read or by the limit, whichever is
    /// reached first; `None` when neither is known.
    pub(super) fn share(&self) -> Option<f64> {
        let input = self.of_input();
        let limit = self.of_limit.map(|share| share.min(1.0));
        input.into_iter().chain(limit).max_by(f64::total_cmp)
    }

    fn of_input(&self) -> Option<f64> {
        let input = self.input.as_ref()?;
        let total = input.total?.max(1);
        Some(input.bytes.min(total) as f64 / total as f64)
    }

    /// Returns the seconds until the input is read, at the speed of the last minute; `None` when unknown, or when the
    /// limit ends the run before.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        if self.share() > self.of_input() {
            return None;
        }
        let input = self.input.as_ref()?;
        let speeds = self.speeds?;
        let left = input.total?.saturating_sub(input.bytes);
        (speeds.bytes >= 1.0).then(|| left as f64 / speeds.bytes)
    }

    /// Returns the lines of the status page by name; empty texts are unknown.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let percent = self
            .share()
            .map(|share| format!("{} %", (share * 100.0) as u64));
        let left = self
            .seconds_left()
            .map(|seconds| format!("{} left", period(seconds)));
        let progress: Vec<String> = percent.into_iter().chain(left).collect();
        let mut place = Vec::new();
        if let Some(input) = &self.input {
            place = input.words();
            if !input.over() && !input.name.is_empty() {
                place.push(input.name.clone());
            }
        }
        let speed = self.speeds.map(|speeds| {
            let documents = grouped(self.documents);
            let tokens = short(speeds.tokens);
            format!("{tokens} tokens/s; {documents} documents since the start")
        });
        let all = [
            ("input", place.join(", ")),
            ("progress", progress.join(", ")),
            ("rate", speed.unwrap_or_default()),
        ];
        let sources = self.input.iter().flat_map(|input| &input.sources);
        let speeds = self
            .of_sources
            .iter()
            .copied()
            .chain(std::iter::repeat(None));
        let by_source = sources
            .zip(speeds)
            .map(|(source, speed)| (format!("source {}", source.name), source.text(speed)));
        let named = all.map(|(name, text)| (name.to_owned(), text));
        let balance = self
            .balance
            .iter()
            .map(|text| ("balance".to_owned(), text.clone()));
        named.into_iter().chain(by_source).chain(balance).collect()
    }

    /// Returns the numbers of the line for a terminal with this many columns, the most important first.
    fn figures(&self, columns: usize) -> [Option<String>; 4] {
        let documents = if columns < NARROW {
            "docs"
        } else {
            "documents"
        };
        [
            self.seconds_left().map(|s| format!("{} left", period(s))),
            self.speeds
                .map(|speeds| format!("{} tokens/s", short(speeds.tokens))),
            Some(format!("{} {documents}", grouped(self.documents))),
            (columns >= NARROW).then(|| format!("{} batches", grouped(self.batches))),
        ]
    }

    /// Formats the line for a terminal with this many columns: what does not fit is left out from the end.
    pub(super) fn line(&self, columns: usize) -> String {
        let mut line = String::new();
        if columns >= NARROW {
            append(&mut line, &tail(&self.producer, columns / 4), columns);
        }
        if let Some(share) = self.share() {
            let cells = if columns < WIDE { BAR } else { BAR_WIDE };
            append(&mut line, &bar(share, cells), columns);
        }
        if let Some(why) = &self.hindered {
            // The rest would only hide the reason.
            let why = head(why, room(&line, columns));
            append(&mut line, &why, columns);
            return line;
        }
        let places = self.input.as_ref().map(InputPosition::words);
        let parts = self.figures(columns).into_iter().flatten();
        for part in parts.chain(places.into_iter().flatten()) {
            if !append(&mut line, &part, columns) {
                return line;
            }
        }
        let room = room(&line, columns);
        if let Some(input) = self.input.as_ref().filter(|input| !input.over())
            && room >= NAME_MIN
        {
            append(&mut line, &tail(&input.name, room), columns);
        }
        line
    }
}

impl InputPosition {
    /// Returns whether all of the input is read.
    fn over(&self) -> bool {
        self.total.is_some_and(|total| self.bytes >= total)
    }

    /// Returns the pass and the number of the file, where there are several, or what follows the input.
    fn words(&self) -> Vec<String> {
        if self.over() {
            return vec!["storing the rest".to_owned()];
        }
        let pass = self.pass.0.saturating_add(1);
        let pass = match self.pass.1 {
            Some(1) => None,
            Some(passes) => Some(format!("pass {pass} of {passes}")),
            None => Some(format!("pass {pass}")),
        };
        let (file, files) = self.file;
        let file = if self.name.is_empty() {
            Some("waits for new files".to_owned())
        } else {
            (files > 1).then(|| format!("file {file} of {files}"))
        };
        pass.into_iter().chain(file).collect()
    }
}

impl SourcePosition {
    /// Formats the pass, the share that is read, and the time left at this many bytes per second.
    fn text(&self, speed: Option<f64>) -> String {
        let (pass, passes) = self.pass;
        let Some((total, passes)) = self.total.zip(passes) else {
            return format!("pass {}, without end", pass.saturating_add(1));
        };
        if self.bytes >= total {
            return "all passes are read".to_owned();
        }
        let share = self.bytes as f64 / total.max(1) as f64;
        let rest = total.saturating_sub(self.bytes) as f64;
        let left = match speed {
            Some(speed) if speed >= 1.0 => format!(", {} left", period(rest / speed)),
            _ => String::new(),
        };
        format!(
            "pass {} of {passes}, {} %{left}",
            pass.saturating_add(1).min(passes),
            (share * 100.0) as u64
        )
    }
}

/// Formats `[====>     ]  42 %`; 100 % is the end only.
fn bar(share: f64, cells: usize) -> String {
    let full = ((share * cells as f64) as usize).min(cells);
    let tip = if full < cells { ">" } else { "" };
    let bar = format!("{}{tip}", "=".repeat(full));
    format!("[{bar:cells$}] {:>3} %", (share * 100.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View {
            producer: "tokens-0".to_owned(),
            input: Some(InputPosition {
                pass: (41, Some(500)),
                file: (6, 17),
                name: "/usr/share/common-licenses/GPL-3".to_owned(),
                bytes: 42_000,
                total: Some(100_000),
                sources: Vec::new(),
                taken: [0; 2],
            }),
            speeds: Some(Speeds {
                tokens: 3_145_728.0,
                bytes: 800.0,
            }),
            of_sources: Vec::new(),
            documents: 12_345,
            tokens: 9_000_000,
            batches: 192,
            hindered: None,
            of_limit: None,
            balance: None,
        }
    }

    #[test]
    fn a_limit_is_a_share_too() {
        let mut view = view();
        view.of_limit = Some(0.75);
        assert_eq!((view.share(), view.seconds_left()), (Some(0.75), None));
        view.of_limit = Some(0.3);
        assert_eq!(view.share(), Some(0.42));
        assert!(view.seconds_left().is_some());
        (view.input, view.of_limit) = (None, Some(1.5));
        assert_eq!(view.share(), Some(1.0));
    }

    #[test]
    fn the_line_fits_into_the_terminal() {
        let view = view();
        assert_eq!(
            view.line(160),
            "tokens-0  [==========>             ]  42 %  1 min 13 s left  3.15M tokens/s  12,345 documents  \
             192 batches  pass 42 of 500  file 6 of 17  ...mmon-licenses/GPL-3"
        );
        assert_eq!(
            view.line(80),
            "[====>     ]  42 %  1 min 13 s left  3.15M tokens/s  12,345 docs  pass 42 of 500"
        );
        for columns in 20..200 {
            let line = view.line(columns);
            assert!(line.len() <= columns, "{columns}: {line}");
        }
    }

    #[test]
    fn the_status_page_has_progress_place_and_rate() {
        let mut view = view();
        let texts: Vec<String> = view.facts().into_iter().map(|(_, text)| text).collect();
        let expected = [
            "pass 42 of 500, file 6 of 17, /usr/share/common-licenses/GPL-3",
            "42 %, 1 min 13 s left",
            "3.15M tokens/s; 12,345 documents since the start",
        ];
        assert_eq!(texts, expected);
        view.balance = Some("even".to_owned());
        let last = view.facts().pop();
        assert_eq!(last, Some(("balance".to_owned(), "even".to_owned())));
        view.balance = None;
        (view.input, view.speeds) = (None, None);
        assert!(view.facts().iter().all(|(_, text)| text.is_empty()));
    }

    #[test]
    fn the_status_page_has_each_source() {
        let mut view = view();
        let source = |name: &str, pass, bytes, total| SourcePosition {
            name: name.to_owned(),
            pass,
            bytes,
            total,
        };
        if let Some(input) = &mut view.input {
            input.sources = vec![
                source("web", (1, Some(3)), 500, Some(900)),
                source("code", (2, Some(2)), 80, Some(80)),
                source("new", (4, None), 50, None),
            ];
        }
        view.of_sources = vec![Some(5.0), Some(9.0)];
        let facts = &view.facts()[3..];
        let expected = [
            ("source web", "pass 2 of 3, 55 %, 1 min 20 s left"),
            ("source code", "all passes are read"),
            ("source new", "pass 5, without end"),
        ];
        assert_eq!(
            facts,
            expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn without_an_end_there_is_no_bar_and_no_time_left() {
        let mut view = view();
        if let Some(input) = &mut view.input {
            input.total = None;
            input.pass = (3, None);
        }
        let line = view.line(160);
        assert!(line.starts_with("tokens-0  3.15M tokens/s"), "{line}");
        assert!(
            line.contains("pass 4  file 6 of 17") && !line.contains("left"),
            "{line}"
        );
        if let Some(input) = &mut view.input {
            input.name.clear();
        }
        let line = view.line(160);
        assert!(line.ends_with("pass 4  waits for new files"), "{line}");
    }

    #[test]
    fn a_producer_that_cannot_go_on_says_why() {
        let mut view = view();
        view.hindered = Some("held back by job llm, whose attempt 0 is at step 3014".to_owned());
        assert_eq!(
            view.line(50),
            "[====>     ]  42 %  held back by job llm, whose..."
        );
        view.hindered = None;
        if let Some(input) = &mut view.input {
            input.bytes = 100_000;
        }
        let line = view.line(160);
        assert!(line.contains("[========================] 100 %"), "{line}");
        assert!(line.ends_with("192 batches  storing the rest"), "{line}");
    }
}
