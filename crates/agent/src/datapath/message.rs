//! Events queued for an agent in this process. A report has a fixed size, so queuing it does not
//! allocate.

use ccplane_wire::Event;

use crate::MAX_VARS;

/// Event queued for an agent.
pub enum Message {
    /// A report; see [`Event::Report`].
    #[expect(missing_docs, reason = "as those of `Event::Report`")]
    Report {
        flow: u64,
        program: u32,
        urgent: bool,
        count: u8,
        fields: [u64; MAX_VARS],
    },
    /// Any event but a report.
    Other(Event<'static>),
}

impl Message {
    /// Converts a report; `None` for other events.
    #[inline]
    pub fn of_report(report: &Event<'_>) -> Option<Message> {
        let Event::Report {
            flow,
            program,
            urgent,
            fields: values,
        } = *report
        else {
            return None;
        };
        let mut fields = [0; MAX_VARS];
        for (field, value) in fields.iter_mut().zip(values) {
            *field = *value;
        }
        Some(Message::Report {
            flow,
            program,
            urgent,
            count: values.len().min(MAX_VARS) as u8,
            fields,
        })
    }

    /// The event.
    pub fn event(&self) -> Event<'_> {
        match self {
            Message::Report {
                flow,
                program,
                urgent,
                count,
                fields,
            } => Event::Report {
                flow: *flow,
                program: *program,
                urgent: *urgent,
                fields: fields.get(..usize::from(*count)).unwrap_or_default(),
            },
            Message::Other(event) => event.clone(),
        }
    }
}

/// Empties a vector of events and reuses its memory for events of another lifetime, without
/// allocation.
pub fn recycle_events<'b>(mut events: Vec<Event<'_>>) -> Vec<Event<'b>> {
    events.clear();
    events.into_iter().map_while(|_| None).collect()
}
