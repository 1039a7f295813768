//! Random numbers that need not be secret.

use ccplane_agent::dice::Dice;

/// Dice that draw other numbers in every process.
pub(super) fn dice() -> Dice {
    Dice(random())
}

/// A random number of the system.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers TLS fails, too, and reports it.
    let _ = crate::identity::provider().secure_random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
