//! Part of `ccplane bench agent`: what an agent in a process of its own costs beside one that maps
//! the kernel's memory.

use ccplane_linux::bench::decision_cost;

use crate::{Error, Figures};

const DECISIONS: usize = 20_000;
/// Reports that wait together: one, and as many as `bench agent` has in a datagram.
const TOGETHER: [usize; 2] = [1, 16];

/// Adds the figures, where this process may load BPF programs.
pub fn add(figures: &mut Figures) -> Result<(), Error> {
    if !nix::unistd::geteuid().is_root() {
        figures.note("without `mapped_decision_ns` and `relayed_decision_ns`: they load BPF programs, as root");
        return Ok(());
    }
    for together in TOGETHER {
        let cost = decision_cost(DECISIONS, together)?;
        figures.add(
            format!("mapped_decision_ns_{together}"),
            cost.mapped_ns,
            "ns",
        );
        figures.add(
            format!("relayed_decision_ns_{together}"),
            cost.relayed_ns,
            "ns",
        );
    }
    figures.note(
        "decision: report in the kernel's ring to words in its table, one thread playing all sides; relayed: by the agent of `attach --agent unix:`",
    );
    Ok(())
}
