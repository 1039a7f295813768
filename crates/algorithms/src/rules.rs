//! Choice between an algorithm as published and with this crate's additions.

/// Rules of an algorithm. Parameters given next to them override their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The paper's rules and this crate's additions.
    Extended,
    /// The paper's rules.
    Paper,
}

impl Rules {
    /// Values of the parameter `rules`.
    pub(crate) const WORDS: [(&str, Rules); 2] =
        [("extended", Rules::Extended), ("paper", Rules::Paper)];
}
