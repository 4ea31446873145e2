//! The forger, who has a producer's rights, and people who set the log back and repair it.

use super::{Bundle, Bundles, FORGER, Moment, Records, VOID};

impl Moment {
    /// Returns the last of `count` records, with the history that it names; a void one keeps its bytes.
    pub(super) fn record(&self, count: usize) -> Option<Records> {
        let ahead = self.ahead.filter(|ahead| ahead.len() == count);
        ahead.or_else(|| (count <= self.log.len()).then(|| self.log.first(count)))
    }

    /// Whether the next record of the log is one that does not continue it.
    pub(super) fn is_stopped(&self) -> bool {
        self.ahead.is_some_and(|a| a.len() == self.log.len() + 1)
    }

    /// A fork of `count` records that leaves the log after `base`.
    fn fork(&self, count: usize, base: usize) -> Option<Records> {
        let mut fork = self.log.first(base);
        if fork.len() < base {
            return None;
        }
        while fork.len() < count {
            fork = fork.with(FORGER);
        }
        Some(fork)
    }
}

impl Bundles {
    pub(super) fn forge(self, m: &mut Moment, count: usize, base: usize) -> Option<()> {
        if m.forged == self.forged || m.bundles[count].is_some() {
            return None;
        }
        let records = m.fork(count, base)?;
        m.bundles[count] = Some(Bundle {
            records,
            intact: true,
        });
        m.forged += 1;
        Some(())
    }

    /// Plants a record beyond the next one. At the next version it would be a commit, by the forger's own rights.
    pub(super) fn plant(self, m: &mut Moment, count: usize, base: usize) -> Option<()> {
        let ahead = m.ahead.is_none() && count > m.log.len() + 1;
        if m.planted == self.planted || !ahead {
            return None;
        }
        m.ahead = Some(m.fork(count, base)?);
        m.planted += 1;
        Some(())
    }

    /// Sets the log back, as from a backup, with all records beyond its end.
    pub(super) fn set_back(self, m: &mut Moment, count: usize) -> Option<()> {
        if m.set_backs == self.set_backs || count >= m.log.len() {
            return None;
        }
        m.log = m.log.first(count);
        m.ahead = None;
        m.set_backs += 1;
        for process in &mut m.processes {
            process.lost = !process.folded.begins(m.log);
        }
        Some(())
    }

    /// Makes the record void at which the log stops.
    pub(super) fn repair(m: &mut Moment) -> Option<()> {
        if !m.is_stopped() {
            return None;
        }
        m.log = m.log.with(VOID);
        Some(())
    }

    pub(super) fn restart(m: &mut Moment, p: usize) -> Option<()> {
        let process = &mut m.processes[p];
        if !process.lost {
            return None;
        }
        process.folded = m.log.first(process.folded.len());
        (process.lost, process.in_doubt) = (false, false);
        Some(())
    }
}
