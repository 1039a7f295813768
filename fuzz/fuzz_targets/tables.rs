//! Arbitrary text as a link trace, a table of flow sizes, a queue or a loss model: a value or an
//! error. The printed form of a queue parses to the same.
#![no_main]

use ccplane_qdisc::{LossModel, QueueSpec, Trace};
use ccplane_sim::SizeTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
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
});
