//! Random numbers that are not secret.

use ccplane_agent::dice::Dice;

/// Returns a generator with a seed that differs between processes.
pub(super) fn dice() -> Dice {
    Dice(random())
}

/// Returns a random number from the system.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Ignore errors: without random numbers TLS fails and reports it.
    let _ = crate::identity::provider().secure_random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
