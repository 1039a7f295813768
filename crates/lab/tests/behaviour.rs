//! Every built-in algorithm alone on the standard link, round by round. The tables are snapshots,
//! and the charts of the documentation must match the simulator's output. New algorithms are
//! included automatically.
//!
//! After an intended change of behaviour, `INSTA_UPDATE=always cargo test -p ccplane-lab --test
//! behaviour` updates the tables and `cargo run --release -p ccplane-lab --example
//! algorithm_pictures` updates the charts. Review the diff.

use std::fs;
use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_lab::behaviour::{alone, picture, rows};

#[test]
fn algorithms_behave_as_recorded() {
    let registry = Registry::builtin();
    let mut differing = Vec::new();
    for name in registry.names() {
        let rounds = alone(&registry, name).unwrap_or_else(|why| panic!("{name}: {why}"));
        let goodput: f64 = rounds.iter().map(|round| round.goodput_mbit).sum();
        assert!(
            rounds.len() == 750 && goodput > 0.0,
            "{name} delivered nothing"
        );
        let page = picture(name, &rounds);
        let kept =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/algorithms/{name}.svg"));
        if fs::read_to_string(&kept).ok().as_deref() != Some(&page) {
            differing.push(kept.display().to_string());
        }
        let table = rows(&rounds);
        let mut settings = insta::Settings::clone_current();
        settings.set_description(format!("{name} alone on 96mbit, 20ms, 1bdp"));
        settings.set_omit_expression(true);
        settings.bind(|| {
            // Collects all differences before the test fails.
            let _ = std::panic::catch_unwind(|| insta::assert_snapshot!(name, table))
                .map_err(|_| differing.push(format!("the snapshot of {name}")));
        });
    }
    assert!(
        differing.is_empty(),
        "different from the simulator's results: {differing:#?}\nif the change is intended: \
         INSTA_UPDATE=always cargo test -p ccplane-lab --test behaviour, and cargo run --release \
         -p ccplane-lab --example algorithm_pictures"
    );
}
