//! ccplane linux.
