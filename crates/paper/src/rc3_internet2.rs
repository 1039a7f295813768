//! RC3, sections 4 and 5.2: a wide-area network of 10 routers and 100 hosts whose links are used to
//! 30 %; how much sooner do flows end with the second loop?
//!
//! Every variant has the same flows at the same times. Compared are those that ended in both
//! simulations, by the receiver's last byte, the handshake included.

mod net;
mod points;
mod run;
mod shown;

use ccplane_algorithms::Registry;
use ccplane_units::Duration;

use self::run::{NAME, Results, Run};
use super::rc3_who::Start;
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "Completion times over Internet-2 at 30 % load, and what they depend on",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, sections 4 and 5.2; set-up as in the authors' published scripts",
    takes: "45 minutes on a core and a half; 2 minutes on two with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(internet2),
};

fn internet2(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let (measured, swept) = match options.quick {
        true => (Duration::from_millis(300), Duration::from_millis(100)),
        false => (Duration::from_secs(3), Duration::from_secs(1)),
    };
    let plan = shown::Plan {
        base: points::base(measured),
        eleven: points::eleven(measured),
        mixed: points::mixed(measured),
        stripped: [Start::Rc3, Start::Blind].map(|start| points::stripped(measured, start, 30)),
        crowded: (!options.quick)
            .then(|| [Start::Rc3, Start::Blind].map(|start| points::stripped(swept, start, 70))),
        sweeps: points::sweeps(options.quick, swept),
    };
    let mut jobs: Vec<Run> = Vec::new();
    let fixed = [plan.base, plan.eleven, plan.mixed];
    for run in fixed
        .into_iter()
        .chain(plan.stripped)
        .chain(plan.crowded.into_iter().flatten())
        .chain(plan.sweeps.iter().map(|point| point.run))
    {
        for run in [run, run.plain()] {
            if !jobs.contains(&run) {
                jobs.push(run);
            }
        }
    }
    let done = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results = Results(jobs.iter().zip(&done).collect());
    shown::findings(&results, &plan).finish(&EXPERIMENT, options)
}
