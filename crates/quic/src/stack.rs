//! Capabilities of each QUIC stack's congestion-control hook.

use ccplane_agent::DynAlgorithm;
use ccplane_datapath::Capabilities;

use crate::PlaneError;

/// QUIC stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// noq, n0's successor of quinn.
    Noq,
    /// quinn. It paces on its own at 1.25 windows per RTT, and reports only the number of lost
    /// bytes.
    Quinn,
    /// s2n-quic, with a controller per path. It counts CE marks and reports the newest packet and
    /// the bytes of an ACK.
    S2n,
}

/// Capabilities of every stack, including those that [`Path`](crate::QuicPath) adds.
const BASE_CAPABILITIES: Capabilities = Capabilities::CWND
    .union(Capabilities::RTT)
    .union(Capabilities::DELIVERY_RATE)
    .union(Capabilities::RECOVERY)
    .union(Capabilities::KEEPS_WINDOW);

impl Stack {
    /// All stacks.
    pub const ALL: [Stack; 3] = [Stack::Noq, Stack::Quinn, Stack::S2n];

    /// Returns an error if the algorithm needs capabilities that the stack lacks.
    pub fn can_run(self, algorithm: &dyn DynAlgorithm) -> Result<(), PlaneError> {
        let missing = algorithm
            .required_capabilities()
            .missing_from(self.capabilities());
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.names().collect();
        Err(PlaneError::Missing {
            algorithm: algorithm.name().to_owned(),
            missing: names.join(", "),
            stack: self.name(),
            instead: Stack::stacks_with(algorithm.required_capabilities()),
        })
    }

    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Stack::Noq => "noq",
            Stack::Quinn => "quinn",
            Stack::S2n => "s2n-quic",
        }
    }

    /// Returns the capabilities available to an algorithm.
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Stack::Noq => BASE_CAPABILITIES.union(Capabilities::PACING),
            Stack::Quinn => BASE_CAPABILITIES,
            Stack::S2n => BASE_CAPABILITIES
                .union(Capabilities::PACING)
                .union(Capabilities::ECN),
        }
    }

    /// Returns alternatives that can run an algorithm with these needs, for an error message.
    fn stacks_with(needs: Capabilities) -> String {
        let can = |stack: &Stack| needs.missing_from(stack.capabilities()).is_empty();
        let names: Vec<&str> = Stack::ALL
            .into_iter()
            .filter(can)
            .map(Stack::name)
            .collect();
        match names.as_slice() {
            [] => "no QUIC stack can run it; use kernel TCP, UDP or the simulator".to_owned(),
            names => format!(
                "use {}, kernel TCP, UDP or the simulator",
                names.join(" or ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};

    use super::*;

    struct Wants(Capabilities);

    impl Algorithm for Wants {
        type Flow = ();

        fn name(&self) -> &str {
            "wants"
        }

        fn required_capabilities(&self) -> Capabilities {
            self.0
        }

        fn programs(&self) -> Programs {
            Programs::new().with("all", "(def (Report (acked 0))) (when true (report))")
        }

        fn open(&mut self, _info: &FlowInfo, _control: &mut Control<'_>) {}

        fn on_report(&mut self, _flow: &mut (), _report: &Report<'_>, _control: &mut Control<'_>) {}
    }

    /// No stack calls a controller without a packet event, so nothing could fire a program's timer.
    #[test]
    fn algorithms_beyond_a_stack_are_refused_with_stacks_that_can_run_them() {
        let wants = box_algorithm(Wants(Capabilities::TIMERS));
        for stack in Stack::ALL {
            let why = stack.can_run(&*wants).unwrap_err().to_string();
            for part in [
                "wants",
                "timer",
                stack.name(),
                "no QUIC stack can run it",
                "kernel TCP",
            ] {
                assert!(why.contains(part), "{why}");
            }
        }
        let paces = box_algorithm(Wants(Capabilities::PACING.union(Capabilities::CWND)));
        assert!(Stack::Noq.can_run(&*paces).is_ok() && Stack::S2n.can_run(&*paces).is_ok());
        let why = Stack::Quinn.can_run(&*paces).unwrap_err().to_string();
        for part in ["wants", "pacing", "quinn", "use noq or s2n-quic"] {
            assert!(why.contains(part), "{why}");
        }
        let marked = box_algorithm(Wants(Capabilities::ECN));
        assert!(Stack::S2n.can_run(&*marked).is_ok());
        let why = Stack::Noq.can_run(&*marked).unwrap_err().to_string();
        for part in ["wants", "ECN counts", "noq", "use s2n-quic"] {
            assert!(why.contains(part), "{why}");
        }
    }
}
