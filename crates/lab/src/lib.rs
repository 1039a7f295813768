//! ccplane lab.
