//! The meeting in the simulator.

use ccplane_qdisc::QueueSpec;
use ccplane_sim::{FlowSpec, LinkSpec, Network, SimOptions, Simulation};
use ccplane_units::{Duration, Time};

use super::super::Options;
use super::super::rc3_theory::PAYLOAD;
use super::super::rc3_who::{Control, Start, shared};
use super::super::simulations::{self, Job};
use super::{BUFFER, Case, DELAY, EXPERIMENT, Order, Place, RATE, Rates, Seen};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics;

const LOOK: Duration = Duration::from_millis(1_000);
/// Looks in full and quick; the second flow begins half-way.
const LOOKS: (u64, u64) = (60, 12);
/// The band of the low one; the other's is 0.
const LOW: u8 = 1;

struct Meeting {
    case: Case,
    looks: u64,
}

pub(super) fn meet(options: &Options, progress: &dyn Progress) -> Result<Seen, Error> {
    let looks = if options.quick { LOOKS.1 } else { LOOKS.0 };
    let jobs = Case::ALL.map(|case| Meeting { case, looks });
    let rates = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    Ok(seen(Case::ALL.into_iter().zip(rates).collect()))
}

fn seen(cases: Vec<(Case, Rates)>) -> Seen {
    Seen {
        name: "simulated",
        suffix: "",
        look: LOOK,
        settling: 1,
        payload: PAYLOAD,
        cases,
    }
}

impl Job for Meeting {
    type Result = Rates;

    fn name(&self) -> String {
        format!("{}-{}", self.case.key(), self.looks)
    }

    fn key(&self) -> String {
        format!("{:?} {}", self.case, self.looks)
    }

    fn run(&self) -> Result<Rates, Error> {
        let broken = simulations::broken(&self.name(), 1, EXPERIMENT.name);
        let plain = LinkSpec::new(RATE, DELAY);
        let queue = QueueSpec::Prio {
            bands: 2,
            shared: true,
            limit: BUFFER,
        };
        let mut network = Network::new();
        let to = network.host("to");
        let senders = match self.case.place {
            Place::Host => {
                let from = network.host("from");
                network.duplex(from, to, plain.clone(), plain);
                [from, from]
            }
            Place::Switch => {
                let switch = network.switch("switch");
                let port = plain.clone().with_queue(queue, DELAY * 4);
                network.duplex(switch, to, port, plain.clone());
                ["high", "low"].map(|name| {
                    let from = network.host(name);
                    network.duplex(from, switch, plain.clone(), plain.clone());
                    from
                })
            }
        };
        let mut sim = Simulation::new(network, SimOptions::seeded(1)).map_err(&broken)?;
        let half = Time::ZERO + LOOK * (self.looks / 2);
        let transport = shared(Start::Tcp.transport());
        let mut flows = Vec::new();
        for (from, band) in senders.into_iter().zip([0, LOW]) {
            let joins = (band == 0) == (self.case.order == Order::HighJoinsLow);
            let flow = FlowSpec::new(from, to)
                .at(if joins { half } else { Time::ZERO })
                .in_band(band)
                .under(Control::Cubic.congestion())
                .with(transport.clone());
            flows.push(sim.add_flow(flow).map_err(&broken)?);
        }
        let mut rates = vec![Vec::new(); flows.len()];
        let mut received = vec![0; flows.len()];
        for look in 1..=self.looks {
            sim.run_until(Time::ZERO + LOOK * look).map_err(&broken)?;
            for ((flow, rates), before) in flows.iter().zip(&mut rates).zip(&mut received) {
                let now = sim.flow(*flow).map_or(*before, |view| view.received);
                rates.push(metrics::mbits(now - *before, LOOK.as_nanos()));
                *before = now;
            }
        }
        let mut rates = rates.into_iter();
        Ok(Rates {
            high: rates.next().unwrap_or_default(),
            low: rates.next().unwrap_or_default(),
            sound: true,
            disturbed: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_priority_has_the_link_and_low_priority_what_is_left() {
        for case in Case::ALL {
            let rates = Meeting { case, looks: 8 }.run().unwrap();
            let seen = seen(vec![(case, rates.clone())]);
            let share = seen.high_share(&rates).unwrap();
            assert!((0.98..1.01).contains(&share), "{case:?}: {share}");
            let low = seen.both(&rates.low).unwrap();
            assert!(low < 2.0, "{case:?}: {low}");
            let first = match case.order {
                Order::HighJoinsLow => &rates.low,
                Order::LowJoinsHigh => &rates.high,
            };
            let alone = seen.alone(first).unwrap();
            assert!(alone > 90.0, "{case:?}: alone {alone}");
        }
    }
}
