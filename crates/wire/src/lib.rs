//! ccplane wire.
