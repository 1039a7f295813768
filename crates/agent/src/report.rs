//! Reports that an algorithm receives.

use ccplane_wire::WireEvent;

use crate::{Control, Fields, FlowId, HostedProgram};

/// Report of a flow's program.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    program: &'a HostedProgram,
    fields: &'a [u64],
    urgent: bool,
    flow: FlowId,
}

impl<'a> Report<'a> {
    /// Returns the value of a report variable, by name with or without `Report.`; `None` if the
    /// program has no such variable. It compares strings, which takes some nanoseconds;
    /// [`HostedProgram::field`] with [`Report::value`] avoids that.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.value(self.program.field(name)?)
    }

    /// Returns the value of the n-th report variable.
    pub fn value(&self, field: usize) -> Option<u64> {
        self.fields.get(field).copied()
    }

    /// Reads the report into the struct that its program was declared with
    /// ([`Programs::with_report`](crate::Programs::with_report)); `None` for any other type.
    pub fn read<T: Fields>(&self) -> Option<T> {
        self.program
            .reports_into::<T>()
            .then(|| T::read(self.fields))?
    }

    /// All values, in order of declaration.
    pub fn fields(&self) -> &'a [u64] {
        self.fields
    }

    /// The program that made the report.
    pub fn program(&self) -> &'a HostedProgram {
        self.program
    }

    /// Returns true if the report includes a loss, a timeout or an undo.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// The flow that made the report.
    pub fn flow(&self) -> FlowId {
        self.flow
    }
}

/// Reports that arrived together, of one or more flows of an algorithm.
pub struct ReportBatch<'a, F> {
    raw: RawReports<'a>,
    states: &'a mut [Option<F>],
}

impl<'a, F> ReportBatch<'a, F> {
    pub(crate) fn new(raw: RawReports<'a>, states: &'a mut [Option<F>]) -> ReportBatch<'a, F> {
        ReportBatch { raw, states }
    }

    /// Returns the next report and the state of its flow, which becomes the flow of `control`.
    pub fn next(&mut self, control: &mut Control<'_>) -> Option<(&mut F, Report<'a>)> {
        loop {
            let (at, event) = self.raw.next()?;
            let WireEvent::Report {
                program: uid,
                urgent,
                fields,
                ..
            } = *event
            else {
                continue;
            };
            let Some(entry) = control.switch_to(at) else {
                continue;
            };
            let program = entry
                .program
                .and_then(|index| self.raw.programs.get(index as usize));
            let Some(program) = program.filter(|p| p.uid == uid) else {
                control.stats_mut().stale_reports += 1;
                continue;
            };
            if fields.len() != program.report_names().len() {
                control.stats_mut().malformed_reports += 1;
                continue;
            }
            control.stats_mut().reports += 1;
            control.stats_mut().urgent_reports += u64::from(urgent);
            let report = Report {
                program,
                fields,
                urgent,
                flow: entry.id,
            };
            // Two look-ups: a reference from this one would stay borrowed in the next iteration.
            if !matches!(self.states.get(entry.slot as usize), Some(Some(_))) {
                continue;
            }
            return self
                .states
                .get_mut(entry.slot as usize)?
                .as_mut()
                .map(|state| (state, report));
        }
    }
}

/// Batch before the type of the flow state is known.
pub struct RawReports<'a> {
    pub(crate) events: &'a [WireEvent<'a>],
    /// Index of the flow of each event; as long as `events`.
    pub(crate) flows: &'a [u32],
    pub(crate) programs: &'a [HostedProgram],
}

impl<'a> RawReports<'a> {
    fn next(&mut self) -> Option<(u32, &'a WireEvent<'a>)> {
        let (event, events) = self.events.split_first()?;
        let (flow, flows) = self.flows.split_first()?;
        (self.events, self.flows) = (events, flows);
        Some((*flow, event))
    }
}
