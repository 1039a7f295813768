//! `AnyQdisc`: an enum over every queue of this crate. A link stores it inline and calls it without
//! dynamic dispatch.

use ccplane_units::Time;

use crate::{
    Backlog, Codel, DropTail, Drops, DualPi2, EcnStep, FqCodel, Packet, Policer, Prio, Qdisc, Rcp,
    Red, Sfq, Tbf, Verdict,
};

macro_rules! queues {
    ($($(#[$doc:meta])* $name:ident($queue:ty),)*) => {
        /// One of the queues of this crate, built by [`QueueSpec::build`](crate::QueueSpec::build).
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum AnyQdisc<P> {
            $($(#[$doc])* $name($queue),)*
        }

        impl<P: Packet> Qdisc<P> for AnyQdisc<P> {
            fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
                match self { $(AnyQdisc::$name(queue) => queue.enqueue(now, packet, drops),)* }
            }

            fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
                match self { $(AnyQdisc::$name(queue) => queue.dequeue(now, drops),)* }
            }

            fn next_ready(&self) -> Option<Time> {
                match self { $(AnyQdisc::$name(queue) => queue.next_ready(),)* }
            }

            fn backlog(&self) -> Backlog {
                match self { $(AnyQdisc::$name(queue) => queue.backlog(),)* }
            }
        }
    };
}

queues! {
    /// FIFO with tail drop.
    DropTail(DropTail<P>),
    /// Strict priority over FIFO bands.
    Prio(Prio<P>),
    /// FIFO with DCTCP's marking threshold.
    EcnStep(EcnStep<P>),
    /// Stochastic fairness queueing.
    Sfq(Sfq<P>),
    /// Controlled delay.
    Codel(Codel<P>),
    /// CoDel per flow, with deficit round robin.
    FqCodel(FqCodel<P>),
    /// Random early detection.
    Red(Red<P>),
    /// Coupled queues for L4S and classic traffic.
    DualPi2(DualPi2<P>),
    /// Token bucket in front of a drop-tail queue.
    Tbf(Tbf<P, DropTail<P>>),
    /// Token bucket without a queue: drops packets that find too few tokens.
    Policer(Policer<P>),
    /// RCP: stamps the flows' fair rate on packets.
    Rcp(Rcp<P>),
}
