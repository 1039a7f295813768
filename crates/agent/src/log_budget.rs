//! Budget of log lines per tenant, so that the lines of one tenant do not displace others.

use ccplane_units::{Duration, Time};

/// Maximum burst of lines. A smaller one would drop lines of a normal connection; a larger one
/// would let a tenant that reconnects repeatedly fill the log.
const BURST_LINES_MAX: u32 = 20;
/// Time until one more line is allowed. With a shorter interval 250 tenants could use all lines
/// that the command's log writes per second; a longer one hides that a problem persists.
const LINE_INTERVAL: Duration = Duration::from_millis(500);

/// Log lines left to a tenant.
#[derive(Debug)]
pub(crate) struct LogBudget {
    available: u32,
    /// Time when the last line was added to `left`.
    refilled: Time,
    suppressed: u64,
}

impl Default for LogBudget {
    fn default() -> LogBudget {
        LogBudget {
            available: BURST_LINES_MAX,
            refilled: Time::ZERO,
            suppressed: 0,
        }
    }
}

/// Permission to write a line, with the number of lines suppressed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPermit {
    /// Lines suppressed since the last one written; `None` if there were none.
    pub suppressed: Option<u64>,
}

impl LogBudget {
    /// Takes a line from the budget; `None` if it is exhausted.
    pub fn take(&mut self, now: Time) -> Option<LogPermit> {
        let new = now.since(self.refilled).as_nanos() / LINE_INTERVAL.as_nanos();
        if new > 0 {
            self.available =
                (u64::from(self.available) + new).min(u64::from(BURST_LINES_MAX)) as u32;
            self.refilled = now;
        }
        if self.available == 0 {
            self.suppressed += 1;
            return None;
        }
        self.available -= 1;
        let suppressed = std::mem::take(&mut self.suppressed);
        Some(LogPermit {
            suppressed: (suppressed > 0).then_some(suppressed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Agent, AgentOptions, DatapathId};

    #[test]
    fn a_flood_is_cut_and_counted() {
        let mut budget = LogBudget::default();
        let lines: Vec<LogPermit> = (0..10_000)
            .filter_map(|us| budget.take(Time::from_micros(us * 1_000)))
            .collect();
        assert_eq!(lines[0].suppressed, None, "nothing was suppressed before");
        // The burst, and one line per half second of the ten.
        assert_eq!(lines.len(), 20 + 19, "{lines:?}");
        let counted: u64 = lines.iter().filter_map(|line| line.suppressed).sum();
        assert_eq!(counted + budget.suppressed + lines.len() as u64, 10_000);
    }

    #[test]
    fn datapaths_of_a_tenant_share_a_budget_that_outlives_them() {
        let (mut agent, now) = (Agent::new(AgentOptions::default()), Time::ZERO);
        let mut lines = |datapath: u32, tenant: Option<&str>| {
            let id = DatapathId(datapath);
            if let Some(tenant) = tenant {
                agent.set_tenant(id, tenant.into());
            }
            let lines = (0..15)
                .filter(|_| agent.take_log_permit(now, id).is_some())
                .count();
            agent.on_disconnect(id);
            lines
        };
        assert_eq!(
            (
                lines(1, Some("bad")),
                lines(2, Some("bad")),
                lines(3, Some("bad"))
            ),
            (15, 5, 0)
        );
        assert_eq!(
            (lines(4, Some("good")), lines(5, None), lines(6, None)),
            (15, 15, 15)
        );
    }
}
