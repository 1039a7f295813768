//! ccplane qdisc.
