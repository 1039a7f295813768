//! ccplane algorithms.
