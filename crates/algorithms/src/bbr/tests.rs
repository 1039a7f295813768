//! What both versions keep, whatever they are told.

use std::collections::BTreeMap;

use ccplane_agent::{Agent, DynAlgorithm, Options};
use proptest::prelude::*;

use super::Orders;
use crate::{Parameters, Registry};

/// Orders, the latest of each.
#[derive(Debug, Default)]
pub(super) struct Recorder(BTreeMap<&'static str, u64>);

impl Recorder {
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Orders for Recorder {
    fn set(&mut self, variable: &'static str, value: u64) {
        self.0.insert(variable, value);
    }

    fn window(&mut self, bytes: u64) {
        self.0.insert("window", bytes);
    }

    fn pace(&mut self, rate: u64) {
        self.0.insert("pace", rate);
    }
}

fn made(name: &str, parameters: &str) -> Box<dyn DynAlgorithm> {
    let parameters: Parameters = parameters.parse().expect("well-formed");
    Registry::builtin().by_name(name, &parameters).expect("built in")
}

#[test]
fn the_programs_fit_every_datapath() {
    for name in ["bbr", "bbr3"] {
        let mut agent = Agent::new(Options::default());
        agent
            .add_boxed(made(name, ""))
            .unwrap_or_else(|why| panic!("{name}: {why:?}"));
        for hosted in agent.hosted() {
            assert!(hosted.kernel_name.len() <= 15 && hosted.kernel_name.starts_with("ccp_"));
            for program in &hosted.programs {
                let cost = program.compiled.cost();
                println!("{name}: {cost:?}");
                assert!(cost.vars <= 32, "{name}: {cost:?}");
            }
        }
    }
}

#[test]
fn an_interval_below_a_second_is_refused_with_the_reason() {
    let parameters = "probe_rtt_interval=10ms".parse::<Parameters>().expect("well-formed");
    for name in ["bbr", "bbr3"] {
        let why = Registry::builtin().by_name(name, &parameters).err().expect("refused");
        assert!(why.to_string().contains("at least 1s"), "{why}");
    }
}

fn report() -> impl Strategy<Value = Vec<u64>> {
    let number = prop_oneof![
        3 => 0u64..100,
        3 => 0u64..10_000_000,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(0xffff_ffffu64),
    ];
    prop::collection::vec(number, 14)
}

proptest! {
    /// Reports of arbitrary fields: no panic, and what goes to the program keeps it within its arithmetic.
    #[test]
    fn arbitrary_reports_do_no_harm(reports in prop::collection::vec(report(), 1..60)) {
        let mut orders = Recorder::default();
        let bbr = super::v1::Bbr::standard();
        let mut one = super::v1::Flow::new(1448, super::Dice(7), 10_000_000);
        let mut three = super::v3::Flow::new(1448, super::Dice(7), 10_000_000);
        for fields in reports {
            if let Some(seen) = super::seen::Seen::read(&fields[..10]) {
                bbr.decide(&mut one, &seen, &mut orders);
            }
            if let Some(seen) = super::seen::Seen::read(&fields) {
                three.decide(&seen, &mut orders);
            }
            prop_assert!(orders.get("gain").is_none_or(|gain| (1..=28_561).contains(&gain)));
            prop_assert!(orders.get("cwnd_gain").is_none_or(|gain| (20_000..=28_850).contains(&gain)));
            prop_assert!(orders.get("cap").is_none_or(|cap| cap >= 4 * 1448));
            prop_assert!(orders.get("phase").is_none_or(|phase| phase <= 8));
            prop_assert!(orders.get("pace").is_none_or(|rate| rate > 0));
            prop_assert!(orders.get("min_rtt").is_none_or(|us| us > 0 && us <= u64::from(u32::MAX)));
        }
    }
}
