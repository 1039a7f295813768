//! DX and Cubic in turns through the emulator, whose log says what each packet waited.

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Contender, Error, NoProgress, RunOptions, run, waited_us};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_testbed::{RealPackets, TransportKind};
use ccplane_units::Duration;

use super::{Options, QUEUE, RATE, Round};

const RTT: Duration = Duration::from_micros(200);

pub(super) fn in_turns(
    options: &Options,
    registry: &Registry,
    round: &mut Round,
) -> Result<(), Error> {
    let contenders = vec![options.contender.clone(), Contender::native("cubic")];
    let queue = QueueSpec::DropTail(Size::Bytes(QUEUE));
    let scenario = Scenario::dumbbell(contenders, RATE, RTT, queue, options.run);
    let once = RunOptions::single(1, "ccplane bench dx");
    let result = run(
        &RealPackets::new(TransportKind::Tcp),
        &scenario,
        registry,
        &once,
        &NoProgress,
    )?;
    let queue_us = |at: usize| {
        let figures = result.contenders.get(at).map(|c| &c.metrics);
        figures.map_or(f64::NAN, |f| waited_us(f.delay_p50_ms, RATE))
    };
    let goodput = |at: usize| {
        result
            .contenders
            .get(at)
            .map_or(f64::NAN, |c| c.metrics.goodput_mbit)
    };
    round.emulated_queue_p50_us = queue_us(0);
    round.emulated_queue_cubic_p50_us = queue_us(1);
    round.emulated_goodput_ratio = goodput(0) / goodput(1);
    let one_way = result
        .contenders
        .first()
        .and_then(|c| c.metrics.one_way.as_ref());
    round.queue_error_p50_us = one_way.map_or(f64::NAN, |o| o.queue_error_p50_us);
    Ok(())
}
