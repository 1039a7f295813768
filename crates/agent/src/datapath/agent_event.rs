//! Events queued for an agent in this process. A report has a fixed size, so queuing it does not
//! allocate.

use ccplane_wire::WireEvent;

use crate::FLOW_VARS_MAX;

/// Event queued for an agent.
pub enum AgentEvent {
    /// A report; see [`WireEvent::Report`].
    #[expect(missing_docs, reason = "same as the fields of `Event::Report`")]
    Report {
        flow: u64,
        program: u32,
        urgent: bool,
        count: u8,
        fields: [u64; FLOW_VARS_MAX],
    },
    /// Any event but a report.
    Other(WireEvent<'static>),
}

impl AgentEvent {
    /// Converts a report; `None` for other events.
    #[inline]
    pub fn from_report(report: &WireEvent<'_>) -> Option<AgentEvent> {
        let WireEvent::Report {
            flow,
            program,
            urgent,
            fields: values,
        } = *report
        else {
            return None;
        };
        let mut fields = [0; FLOW_VARS_MAX];
        for (field, value) in fields.iter_mut().zip(values) {
            *field = *value;
        }
        Some(AgentEvent::Report {
            flow,
            program,
            urgent,
            count: values.len().min(FLOW_VARS_MAX) as u8,
            fields,
        })
    }

    /// The event.
    pub fn event(&self) -> WireEvent<'_> {
        match self {
            AgentEvent::Report {
                flow,
                program,
                urgent,
                count,
                fields,
            } => WireEvent::Report {
                flow: *flow,
                program: *program,
                urgent: *urgent,
                fields: fields.get(..usize::from(*count)).unwrap_or_default(),
            },
            AgentEvent::Other(event) => event.clone(),
        }
    }
}

/// Empties a vector of events and reuses its memory for events of another lifetime, without
/// allocation.
pub fn recycle_events<'b>(mut events: Vec<WireEvent<'_>>) -> Vec<WireEvent<'b>> {
    events.clear();
    events.into_iter().map_while(|_| None).collect()
}
