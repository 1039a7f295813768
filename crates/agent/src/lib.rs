//! ccplane agent.
