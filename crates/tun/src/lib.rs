//! ccplane tun.
