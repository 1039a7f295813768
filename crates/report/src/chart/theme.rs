//! Colours of charts in both themes, as values for files and as custom properties for pages.

use std::fmt::Write;

/// Number of colours in the palette. The first six are based on Okabe and Ito's for colour-blind
/// readers.
pub const PALETTE_COLOURS: usize = 13;

/// Number of distinct colours of contenders: the palette without [`GREY`].
pub const CONTENDER_HUES: usize = PALETTE_COLOURS - 1;

/// Palette index of grey, for lines that are no contender's: capacity, datagrams.
pub const GREY: usize = 5;

/// Returns the palette index of the `n`th contender or algorithm, which is never [`GREY`].
/// [`CONTENDER_HUES`] in a row are distinct.
pub const fn hue(n: usize) -> usize {
    let hue = n % CONTENDER_HUES;
    if hue < GREY { hue } else { hue + 1 }
}

/// Colours of one theme, `#rrggbb`.
#[derive(Debug)]
pub(super) struct Colours {
    pub page: &'static str,
    pub ink: &'static str,
    pub muted: &'static str,
    pub grid: &'static str,
    pub guide: &'static str,
    pub primary: [&'static str; PALETTE_COLOURS],
    /// Secondary shades, for native contenders next to ours.
    pub secondary: [&'static str; PALETTE_COLOURS],
}

pub(super) const LIGHT_COLOURS: Colours = Colours {
    page: "#ffffff",
    ink: "#1b1f24",
    muted: "#5b6570",
    grid: "#e9edf1",
    guide: "#7d8791",
    primary: [
        "#0072b2", "#c04a00", "#00805c", "#a3427a", "#6b5b00", "#444b52", "#7a3fc4", "#c2185b",
        "#2e7d00", "#8c2f1b", "#00798c", "#4a55c7", "#9a6a00",
    ],
    secondary: [
        "#2b8fd0", "#d9661a", "#12986f", "#c2629a", "#8f7a08", "#737c85", "#9a6fd8", "#e0527f",
        "#5c9417", "#b8573f", "#1f8f9f", "#7a84dd", "#a87b1e",
    ],
};

pub(super) const DARK_COLOURS: Colours = Colours {
    page: "#14171b",
    ink: "#e7eaee",
    muted: "#9aa5b1",
    grid: "#252b32",
    guide: "#75808c",
    primary: [
        "#4db2f0", "#ff8f4a", "#2fcf9f", "#ee8fc6", "#dcc437", "#c2cad2", "#b794f6", "#ff7a9c",
        "#8fd14f", "#e08a70", "#45c9d6", "#94a3ff", "#e0aa4a",
    ],
    secondary: [
        "#9cd3f7", "#ffc29c", "#9be5cd", "#f6c4e1", "#efe08e", "#8b949e", "#d7c3fb", "#ffb5c7",
        "#c3e8a0", "#f0bfae", "#a0e4ea", "#c6ceff", "#f0d3a0",
    ],
};

impl Colours {
    /// Returns the custom properties of a page: `--page`, `--c0`, `--s0` and so on.
    pub fn properties(&self) -> String {
        let mut out = format!(
            "--page: {}; --ink: {}; --muted: {}; --grid: {}; --guide: {};",
            self.page, self.ink, self.muted, self.grid, self.guide
        );
        for (prefix, palette) in [("c", &self.primary), ("s", &self.secondary)] {
            for (n, colour) in palette.iter().enumerate() {
                let _ = write!(out, " --{prefix}{n}: {colour};");
            }
        }
        out
    }

    /// Returns a palette colour.
    pub fn line(&self, colour: usize, secondary: bool) -> &'static str {
        let palette = if secondary {
            &self.secondary
        } else {
            &self.primary
        };
        palette[colour % PALETTE_COLOURS]
    }

    /// Mixes `percent` of a colour with the colour of text, as `color-mix(in srgb)` does on a
    /// page. The mixture has more contrast than the colour.
    pub fn shade(&self, colour: &str, percent: u8) -> String {
        let (own, ink) = (components(colour), components(self.ink));
        let mut out = String::from("#");
        for (own, ink) in own.into_iter().zip(ink) {
            let share = f64::from(percent.min(100)) / 100.0;
            let mixed = f64::from(own) * share + f64::from(ink) * (1.0 - share);
            let _ = write!(out, "{:02x}", mixed.round() as u8);
        }
        out
    }
}

/// Returns red, green and blue of `#rrggbb`.
fn components(colour: &str) -> [u8; 3] {
    let number = u32::from_str_radix(colour.trim_start_matches('#'), 16).unwrap_or(0);
    let [_, red, green, blue] = number.to_be_bytes();
    [red, green, blue]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the contrast ratio of WCAG 2.2.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| -> f64 {
            let linear = components(colour).map(|part| {
                let part = f64::from(part) / 255.0;
                match part <= 0.04045 {
                    true => part / 12.92,
                    false => libm::pow((part + 0.055) / 1.055, 2.4),
                }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn lines_and_text_have_contrast_in_both_themes() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        for theme in [&LIGHT_COLOURS, &DARK_COLOURS] {
            for colour in theme.primary.iter().chain(&theme.secondary) {
                // WCAG 2.2, 1.4.11: graphical objects have a contrast of at least 3:1.
                let pure = contrast(colour, theme.page);
                assert!(pure >= 3.0, "{colour} on {}: {pure}", theme.page);
                for percent in [100, 78, 55] {
                    let shade = theme.shade(colour, percent);
                    assert!(contrast(&shade, theme.page) >= 3.0, "{shade}");
                }
            }
            assert!(contrast(theme.guide, theme.page) >= 3.0);
            // 1.4.3: text has at least 4.5:1.
            for text in [theme.ink, theme.muted] {
                assert!(contrast(text, theme.page) >= 4.5, "{text}");
            }
        }
    }

    #[test]
    fn twelve_contenders_have_twelve_colours() {
        let mut hues: Vec<usize> = (0..12).map(hue).collect();
        assert!(!hues.contains(&GREY));
        hues.sort_unstable();
        hues.dedup();
        assert_eq!((hues.len(), hue(12)), (12, hue(0)));
        for theme in [&LIGHT_COLOURS, &DARK_COLOURS] {
            let mut colours = [theme.primary, theme.secondary].concat();
            colours.sort_unstable();
            colours.dedup();
            assert_eq!(colours.len(), 2 * PALETTE_COLOURS);
        }
    }

    #[test]
    fn shades_are_mixed_with_ink() {
        assert_eq!(LIGHT_COLOURS.shade("#ffffff", 100), "#ffffff");
        assert_eq!(LIGHT_COLOURS.shade("#0072b2", 0), LIGHT_COLOURS.ink);
        assert_eq!(LIGHT_COLOURS.shade("#0072b2", 50), "#0e496b");
    }
}
