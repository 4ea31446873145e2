//! Making and registering a daemon's metrics under its prefix, and the counters of store requests, which
//! both daemons have.

pub mod page;

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use batchweave_store::counting::Counted;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, PullingGauge, Registry, Result,
};

use crate::health::Health;

/// A metric as docs/metrics.md lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The name with its prefix.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<String>,
    /// The help text: one sentence.
    pub help: String,
}

/// Makes and registers metrics, and remembers them for docs/metrics.md.
#[derive(Debug)]
pub struct Maker<'a> {
    registry: &'a Registry,
    prefix: &'static str,
    made: RefCell<Vec<Described>>,
}

impl<'a> Maker<'a> {
    /// Returns a maker whose names begin with `prefix` and an underscore.
    pub fn new(registry: &'a Registry, prefix: &'static str) -> Self {
        Self {
            registry,
            prefix,
            made: RefCell::default(),
        }
    }

    /// Returns all metrics made so far.
    pub fn described(&self) -> Vec<Described> {
        self.made.borrow().clone()
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("{}_{name}", self.prefix), help)
    }

    fn add<C: Collector + Clone + 'static>(
        &self,
        kind: &'static str,
        made: Result<C>,
    ) -> Result<C> {
        let collector = made?;
        self.register(kind, collector.clone())?;
        Ok(collector)
    }

    fn register<C: Collector + 'static>(&self, kind: &'static str, collector: C) -> Result<()> {
        let described = collector.desc().into_iter().map(|desc| Described {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        });
        self.made.borrow_mut().extend(described);
        self.registry.register(Box::new(collector))
    }

    /// Makes a counter of integers.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.add("counter", IntCounter::with_opts(self.opts(name, help)))
    }

    /// The same, by label.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.add("counter", IntCounterVec::new(self.opts(name, help), labels))
    }

    /// Makes a counter of seconds for each combination of labels.
    pub fn seconds(&self, name: &str, help: &str, labels: &[&str]) -> Result<CounterVec> {
        self.add("counter", CounterVec::new(self.opts(name, help), labels))
    }

    /// Makes a gauge of integers.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        self.add("gauge", IntGauge::with_opts(self.opts(name, help)))
    }

    /// The same, by label.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.add("gauge", IntGaugeVec::new(self.opts(name, help), labels))
    }

    /// Makes a gauge of seconds.
    pub fn seconds_gauge(&self, name: &str, help: &str) -> Result<Gauge> {
        self.add("gauge", Gauge::with_opts(self.opts(name, help)))
    }

    /// Makes a gauge of a share, from 0 to 1.
    pub fn ratio_gauge(&self, name: &str, help: &str) -> Result<Gauge> {
        self.add("gauge", Gauge::with_opts(self.opts(name, help)))
    }

    /// Makes a gauge of numbers for each combination of labels.
    pub fn number_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
        self.add("gauge", GaugeVec::new(self.opts(name, help), labels))
    }

    /// Makes a histogram of seconds, from 10 ms to a minute.
    pub fn histogram(&self, name: &str, help: &str) -> Result<Histogram> {
        let buckets = vec![
            0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
        ];
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets);
        self.add("histogram", Histogram::with_opts(opts))
    }

    /// Makes a histogram of seconds, from 10 us to 30 s, for each combination of labels.
    pub fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec> {
        let steps = [1.0, 3.0];
        let decade = |exponent: i32| steps.map(|step| step * 10_f64.powi(exponent));
        let buckets = (-5..2).flat_map(decade).collect();
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets);
        self.add("histogram", HistogramVec::new(opts, labels))
    }

    /// Makes the metrics of every daemon: version, start time and readiness.
    pub fn process(&self, version: &str, health: &Health) -> Result<()> {
        let built = self.gauges("build_info", "1, with the version as label.", &["version"])?;
        built.with_label_values(&[version]).set(1);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.seconds_gauge("start_time_seconds", "When the process began, since 1970.")?
            .set(since.map_or(0.0, |d| d.as_secs_f64()));
        let health = health.clone();
        let ready = PullingGauge::new(
            format!("{}_ready", self.prefix),
            "1 while /readyz says ready.",
            Box::new(move || f64::from(u8::from(health.get().0))),
        )?;
        self.register("gauge", ready)
    }

    /// Makes counters of the store's requests, which are read when metrics are gathered.
    pub fn counted(&self, counted: Counted) -> Result<()> {
        self.store(move || {
            let mut now = Vec::new();
            for (class, counts) in counted.by_class() {
                let made = counts.iter().filter(|(_, count)| count.requests > 0);
                now.extend(made.map(|(op, count)| Requests {
                    class,
                    op: op.name(),
                    made: count.requests,
                    errors: count.errors,
                    bytes: count.bytes,
                }));
            }
            now
        })
    }

    /// Makes the counters; `sample` is called when metrics are gathered.
    fn store(&self, sample: impl Fn() -> Vec<Requests> + Send + Sync + 'static) -> Result<()> {
        let family = |name, help| IntCounterVec::new(self.opts(name, help), &["class", "op"]);
        let families = [
            family(
                "store_requests_total",
                "Requests to the store, by class of keys and kind.",
            )?,
            family(
                "store_errors_total",
                "Failed requests, by class and kind, without missing objects.",
            )?,
            family(
                "store_bytes_total",
                "Bytes to and from the store, by kind of request.",
            )?,
        ];
        let sample = Box::new(sample);
        self.register("counter", Store { sample, families })
    }
}

/// Totals of one kind of request for one class of keys since the start of the process.
#[derive(Debug, Clone, Copy)]
struct Requests {
    class: &'static str,
    op: &'static str,
    made: u64,
    errors: u64,
    bytes: u64,
}

struct Store {
    sample: Box<dyn Fn() -> Vec<Requests> + Send + Sync>,
    families: [IntCounterVec; 3],
}

impl Collector for Store {
    fn desc(&self) -> Vec<&Desc> {
        self.families.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for now in (self.sample)() {
            let values = [now.made, now.errors, now.bytes];
            for (family, value) in self.families.iter().zip(values) {
                let counter = family.with_label_values(&[now.class, now.op]);
                counter.inc_by(value.saturating_sub(counter.get()));
            }
        }
        self.families.iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn store_counters_show_what_the_sample_says() {
        let registry = Registry::new();
        let made = Arc::new(AtomicU64::new(3));
        let read = Arc::clone(&made);
        let sample = move || {
            let requests = read.load(Relaxed);
            vec![Requests {
                class: "log",
                op: "get",
                made: requests,
                errors: 1,
                bytes: 70,
            }]
        };
        let maker = Maker::new(&registry, "test");
        maker.store(sample).unwrap();
        maker.gauge("g", "A gauge.").unwrap().set(5);
        let text = || {
            let families = registry.gather();
            prometheus::TextEncoder::new()
                .encode_to_string(&families)
                .unwrap()
        };
        assert!(text().contains("test_store_requests_total{class=\"log\",op=\"get\"} 3\n"));
        made.store(5, Relaxed);
        for line in [
            "test_store_requests_total{class=\"log\",op=\"get\"} 5\n",
            "test_store_errors_total{class=\"log\",op=\"get\"} 1\n",
            "test_store_bytes_total{class=\"log\",op=\"get\"} 70\n",
            "test_g 5\n",
        ] {
            assert!(text().contains(line), "{line} in {}", text());
        }
        assert!(maker.gauge("g", "Twice.").is_err());
    }
}
