//! ccplane lang.
