//! Several experiments in their quick form, on one page.

use std::time::Duration as Wall;

use ccplane_algorithms::Registry;
use serde_json::{Map, Value};

use super::{Experiment, Options, Outcome, by_name, page};
use ccplane_lab::Error;
use ccplane_lab::traffic::monotonic_ns;
use ccplane_lab::{Progress, Step};

/// Runs all parts, by their names, and writes the whole's page.
pub(super) fn run(
    whole: &Experiment,
    parts: &[&str],
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let (mut figures, mut text, mut body) = (Map::new(), String::new(), String::new());
    let (mut unsound, mut attempts) = (0, Map::new());
    let begun = monotonic_ns();
    // An experiment that runs nowhere else is left out where only the simulator is asked for.
    let parts = parts.iter().filter_map(|name| by_name(name));
    let asked: Vec<_> = parts.filter(|part| part.on.iter().any(|on| options.on(*on))).collect();
    for (n, part) in asked.iter().enumerate() {
        let own = Options {
            quick: true,
            directory: options.directory.join(part.name),
            ..options.clone()
        };
        let step = Step::begin(progress, n, asked.len(), part.name);
        let outcome = part.run(&own, registry, &step)?;
        unsound += outcome
            .figures
            .get(page::UNSOUND)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0);
        let mut own = outcome.figures;
        if let Some(Value::Object(tried)) = own.remove(page::ATTEMPTS) {
            attempts.extend(
                tried
                    .into_iter()
                    .map(|(run, all)| (format!("{}/{run}", part.name), all)),
            );
        }
        figures.extend(own);
        text += &format!("# {}: {}\n\n{}\n", part.name, part.title, outcome.text);
        body += &outcome.body;
    }
    let took = Wall::from_nanos(monotonic_ns() - begun);
    figures.insert(page::UNSOUND.into(), unsound.into());
    figures.insert(page::ATTEMPTS.into(), attempts.into());
    text += &format!("{} s in all; {unsound} runs were not sound.\n", took.as_secs());
    let quick = Options {
        quick: true,
        ..options.clone()
    };
    let page = page::write(&quick, whole.title, &body, &mut figures)?;
    Ok(Outcome {
        figures,
        text,
        page,
        body,
    })
}
