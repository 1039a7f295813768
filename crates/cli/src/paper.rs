//! `ccplane paper`: published experiments, run again, their figures beside the paper's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccplane_lab::Progress;
use ccplane_lab::paper::{self, Options};
use clap::Args;
use indicatif::ProgressBar;

use crate::Registry;
use crate::exit::{Failure, Kind};
use crate::run::{command_line, failure, percent_bar};
use crate::{doctor, interrupt};

/// Which experiment.
#[derive(Args)]
pub struct PaperArgs {
    /// Its name, or `list`.
    name: String,
    /// In less than two minutes, with fewer and shorter runs: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Folder for parts and results. Parts that are there already are used again.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &PaperArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if args.name == "list" {
        list(json);
        return Ok(());
    }
    let Some(experiment) = paper::by_name(&args.name) else {
        let known: Vec<&str> = paper::ALL.iter().map(|e| e.name).collect();
        return Err(
            Failure::text(Kind::Usage, format!("there is no experiment `{}`", args.name))
                .hint(format!("there are: {}", known.join(", "))),
        );
    };
    doctor::require(&[doctor::Need::Emulator, doctor::Need::KernelTcp])?;
    let directory = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("ccplane-results").join(experiment.name));
    let options = Options {
        quick: args.quick,
        directory,
        command: command_line(),
    };
    let mut progress = Bar {
        bar: percent_bar(),
        stop: interrupt::flag()?,
        runs: (0, 1),
    };
    let outcome = experiment.run(&options, registry, &mut progress);
    progress.bar.finish_and_clear();
    let outcome = outcome.map_err(failure)?;
    if json {
        println!("{}", serde_json::Value::Object(outcome.figures));
    } else {
        println!("{}", outcome.text);
        println!("report: {}", outcome.page.display());
    }
    Ok(())
}

fn list(json: bool) {
    if json {
        let all: Vec<_> = paper::ALL
            .iter()
            .map(|e| serde_json::json!({ "name": e.name, "title": e.title, "source": e.source, "takes": e.takes }))
            .collect();
        println!("{}", serde_json::json!({ "experiments": all }));
        return;
    }
    for e in paper::ALL {
        println!("{}\n    {}\n    {}; takes {}", e.name, e.title, e.source, e.takes);
    }
}

struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    runs: (usize, usize),
}

impl Progress for Bar {
    fn begin(&mut self, contender: &str, index: usize, of: usize) {
        self.runs = (index, of.max(1));
        self.bar.set_message(contender.to_owned());
        self.step(0.0, 0.0);
    }
    fn step(&mut self, share: f64, _goodput_mbit: f64) {
        let (index, of) = self.runs;
        self.bar
            .set_position(((index as f64 + share) * 100.0 / of as f64) as u64);
    }
    fn cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}
