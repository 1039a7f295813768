//! A site whose box paces what it sends: where its queue stands, in the simulator.

mod common;

use std::path::Path;

use ccplane_lab::scenario::Scenario;
use common::simulate;

#[test]
fn the_queue_moves_from_the_network_into_the_box() {
    let shipped = Scenario::find(Path::new("22-bundle")).expect("it is shipped");
    // Before the cross traffic comes.
    let text = shipped.text.replace("duration = \"60s\"", "duration = \"12s\"");
    let text = match text.split_once("\n[[workload]]\nname = \"cross\"") {
        Some((alone, _)) => alone.to_owned(),
        None => panic!("the cross traffic is the last workload"),
    };
    let result = simulate(&text);
    let of = |label: &str| {
        let contender = result.contenders.iter().find(|c| c.label == label);
        let contender = contender.expect("it ran");
        assert!(contender.audit.sound, "{:?}", contender.audit);
        let [bundle] = contender.figures.bundles.as_slice() else {
            panic!("{:?}", contender.figures.bundles)
        };
        (contender, bundle)
    };
    let ((ours, paced), (native, open)) = (of("bundler"), of("native:cubic"));
    assert_eq!((open.open_share, open.changes.len(), open.box_queue_ms), (1.0, 0, None));
    assert!(paced.delay_share > 0.9, "{paced:?}");
    assert!(
        paced.network_queue_p95_ms < 0.5 * open.network_queue_p95_ms,
        "{paced:?} {open:?}"
    );
    assert!(paced.box_queue_ms > Some(5.0), "{paced:?}");
    assert!(ours.figures.goodput_mbit > 0.97 * native.figures.goodput_mbit);
    // What waits in the box is scheduled there: whoever sends little does not wait for who sends much.
    let small = |c: &ccplane_lab::result::ContenderResult| {
        let completions = c.figures.completions.as_ref().expect("messages end");
        completions
            .classes
            .first()
            .map(|class| class.slowdown_p99)
            .unwrap_or(0.0)
    };
    assert!(small(ours) < small(native), "{} {}", small(ours), small(native));
    let [samples] = ours.series.bundles.as_slice() else {
        panic!("{} bundles", ours.series.bundles.len())
    };
    assert_eq!(samples.len(), 601, "a look each 20 ms");
}
