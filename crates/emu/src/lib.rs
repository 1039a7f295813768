//! ccplane emu.
