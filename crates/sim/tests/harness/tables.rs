//! Any text as a trace of a link, a table of flow sizes, a queue or a model of losses: a value or a
//! reason, and what is printed of a queue or a model is read as the same.

use ccplane_qdisc::{LossModel, QueueSpec, Trace};
use ccplane_sim::SizeTable;

/// Holds for any text.
pub fn any_table(text: &str) {
    if let Ok(trace) = Trace::parse(text) {
        assert!(trace.opportunities() > 0);
    }
    if let Ok(table) = SizeTable::parse(text) {
        assert!(table.mean().is_finite() && table.quantile(0.0) <= table.quantile(1.0));
    }
    if let Ok(queue) = text.parse::<QueueSpec>() {
        let printed = queue.to_string();
        assert_eq!(
            printed
                .parse::<QueueSpec>()
                .ok()
                .map(|again| again.to_string()),
            Some(printed)
        );
    }
    if let Ok(model) = text.parse::<LossModel>() {
        assert!(format!("{model:?}").len() < 1_000);
    }
}
