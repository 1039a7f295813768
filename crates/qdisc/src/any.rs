//! Every queue in one type, so that a link can hold whichever its description names without a call
//! through a pointer.

use ccplane_units::Time;

use crate::{
    Backlog, Codel, DropTail, Drops, DualPi2, EcnStep, FqCodel, Packet, Policer, Prio, Qdisc, Rcp,
    Red, Sfq, Tbf, Verdict,
};

macro_rules! queues {
    ($($(#[$doc:meta])* $name:ident($queue:ty),)*) => {
        /// One of the queues of this crate; [`QueueSpec::build`](crate::QueueSpec::build) makes it.
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
    /// First in, first out.
    DropTail(DropTail<P>),
    /// Strict priority.
    Prio(Prio<P>),
    /// DCTCP's threshold.
    EcnStep(EcnStep<P>),
    /// Stochastic fairness.
    Sfq(Sfq<P>),
    /// Controlled delay.
    Codel(Codel<P>),
    /// Controlled delay for every flow.
    FqCodel(FqCodel<P>),
    /// Random early detection.
    Red(Red<P>),
    /// Coupled queues for L4S and the rest.
    DualPi2(DualPi2<P>),
    /// A token bucket before a drop-tail queue.
    Tbf(Tbf<P, DropTail<P>>),
    /// A token bucket that drops what finds no tokens.
    Policer(Policer<P>),
    /// Rates stamped on packets.
    Rcp(Rcp<P>),
}
