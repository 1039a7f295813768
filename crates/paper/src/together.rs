//! Several experiments on one page.

use std::time::Duration as Wall;

use ccplane::program::{self, Failure};
use ccplane_algorithms::Registry;
use ccplane_lab::{Progress, ProgressStep};
use ccplane_report::provenance;
use ccplane_testbed::traffic::monotonic_ns;
use serde_json::Map;

use super::{Experiment, Options, Outcome, by_name, page};

/// Deviations from the paper: a list of a part, an object of lists of the whole.
const DEVIATIONS: &str = "deviations";

/// Returns the key of a part's result in the whole, given the name of the part and its own key.
pub(super) type Key = fn(part: &str, key: &str) -> String;

/// Key without a change: no two parts have the same.
pub(super) fn own(_part: &str, key: &str) -> String {
    key.to_owned()
}

/// Key with the name of the part without its system: `sendbox_cc_median_copa` of
/// `bundler-sendbox-cc`.
pub(super) fn of_part(part: &str, key: &str) -> String {
    let name = part.split_once('-').map_or(part, |(_, name)| name);
    format!("{}_{key}", name.replace('-', "_"))
}

/// Key with the whole name of the part.
pub(super) fn of_part_in_full(part: &str, key: &str) -> String {
    format!("{}_{key}", part.replace('-', "_"))
}

/// Runs all parts and writes one page.
pub(super) fn run(
    whole: &Experiment,
    parts: &[&[&str]],
    key: Key,
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Failure> {
    let (mut figures, mut text, mut body) = (Map::new(), String::new(), String::new());
    let (mut unsound, mut deviations) = (0, Map::new());
    let begun = monotonic_ns();
    // Parts without the requested datapath are left out.
    let datapath = match whole.on {
        [only] => Some(*only),
        _ => options.datapath,
    };
    let options = &Options {
        datapath,
        ..options.clone()
    };
    let parts = parts
        .iter()
        .copied()
        .flatten()
        .filter_map(|name| by_name(name));
    let asked: Vec<_> = parts
        .filter(|part| part.on.iter().any(|on| options.on(*on)))
        .collect();
    for (n, part) in asked.iter().enumerate() {
        let own = part_options(options, part.name);
        let step = ProgressStep::begin(progress, n, asked.len(), part.name);
        let outcome = part.run(&own, registry, &step)?;
        let mut own = outcome.figures;
        unsound += own
            .remove(page::UNSOUND)
            .and_then(|n| n.as_u64())
            .unwrap_or(0);
        // The whole has its own provenance.
        own.remove(provenance::PROVENANCE_MEMBER);
        if let Some(list) = own.remove(DEVIATIONS) {
            deviations.insert(part.name.to_owned(), list);
        }
        figures.extend(
            own.into_iter()
                .map(|(figure, value)| (key(part.name, &figure), value)),
        );
        text += &format!("# {}: {}\n\n{}\n", part.name, part.title, outcome.text);
        body += &outcome.body;
    }
    let took = Wall::from_nanos(monotonic_ns() - begun);
    figures.insert(page::UNSOUND.into(), unsound.into());
    figures.insert(DEVIATIONS.into(), deviations.into());
    text += &format!(
        "{} s in all; {unsound} runs were not sound.\n",
        took.as_secs()
    );
    let page = page::write(options, whole.title, &body, &mut figures);
    let page = page.map_err(program::failure)?;
    Ok(Outcome {
        figures,
        text,
        page,
        body,
    })
}

/// Returns the options of a part: those of the whole, with a folder of its own.
fn part_options(options: &Options, part: &str) -> Options {
    Options {
        directory: options.directory.join(part),
        ..options.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use ccplane_report::Provenance;

    use super::*;

    #[test]
    fn parts_are_full_or_quick_as_the_whole() {
        for quick in [false, true] {
            let options = Options {
                agents: Vec::new(),
                quick,
                datapath: None,
                threads: 1,
                repeats: None,
                any_build: false,
                directory: PathBuf::from("whole"),
                force: false,
                command: String::new(),
                provenance: Provenance::default(),
            };
            let own = part_options(&options, "rc3-fct");
            assert_eq!(
                (own.quick, &*own.directory),
                (quick, Path::new("whole/rc3-fct"))
            );
        }
    }

    #[test]
    fn figures_of_several_parts_have_names_of_their_own() {
        assert_eq!(own("dx-senders", "util_10"), "util_10");
        assert_eq!(
            of_part("bundler-sendbox-cc", "median_copa"),
            "sendbox_cc_median_copa"
        );
        assert_eq!(of_part("bundler-two", "queue_p95_ms"), "two_queue_p95_ms");
    }
}
