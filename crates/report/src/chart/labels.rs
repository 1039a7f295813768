//! Placement of labels next to points, so that no label covers another one or a dot.

/// Upper bound of the mean glyph width at 12 px, for laying out keys. A smaller value lets them
/// overlap.
pub(super) const LETTER_WIDTH: f64 = 6.6;
/// Height of a line of text at 12 px, and the part of it above the baseline.
pub(super) const TEXT_HEIGHT: f64 = 14.0;
const ASCENT: f64 = 11.0;
/// Distance of a label from the centre of its point.
const GAP: f64 = 7.0;
/// Half the size of a dot, with some room around it.
const DOT: f64 = 4.0;
/// Distances that are tried for labels without room next to their point.
const FAR_DISTANCES: [f64; 9] = [18.0, 32.0, 46.0, 60.0, 80.0, 110.0, 145.0, 185.0, 230.0];

/// Rectangle: left, top, right, bottom.
pub(super) type Rect = (f64, f64, f64, f64);

/// Position of a label: left end of its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LabelPosition {
    pub x: f64,
    pub baseline: f64,
    /// True for a label that needs a line to its point.
    pub far: bool,
}

/// Returns the estimated width of a text.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER_WIDTH
}

/// Places labels of (point, text) inside `area`, in this order, next to their points if there is
/// room. `dots` are the centres of all dots.
pub(super) fn place(
    labels: &[((f64, f64), &str)],
    dots: &[(f64, f64)],
    area: Rect,
) -> Vec<LabelPosition> {
    let mut taken: Vec<Rect> = dots
        .iter()
        .map(|(x, y)| (x - DOT, y - DOT, x + DOT, y + DOT))
        .collect();
    let mut placed = Vec::new();
    for ((x, y), text) in labels {
        let wide = width(text);
        let near = [
            (x + GAP, y + 4.0),
            (x - GAP - wide, y + 4.0),
            (x - wide / 2.0, y - GAP - 1.0),
            (x - wide / 2.0, y + GAP + ASCENT),
        ]
        .map(|at| (at, false));
        let far = FAR_DISTANCES.iter().flat_map(|by| {
            let (side, up) = (by * 0.8, by * 0.8);
            [
                (x + side, y - up),
                (x + side, y + up),
                (x - side - wide, y - up),
                (x - side - wide, y + up),
                (x - wide / 2.0, y - by),
                (x - wide / 2.0, y + by + 4.0),
                // Steeper and flatter directions, for points near a corner.
                (x + by * 0.3, y - by),
                (x + by * 0.3, y + by),
                (x + by, y - by * 0.4),
                (x + by, y + by * 0.4),
                (x - by * 0.3 - wide, y + by),
                (x - by - wide, y + by * 0.4),
            ]
            .map(|at| (at, true))
        });
        // Overlap with other boxes, and the part that is outside the area, which is worse.
        let cost = |at: (f64, f64)| {
            let own = bounds(at, wide);
            let outside = overlap(own, own) - overlap(own, area);
            let others: f64 = taken.iter().map(|other| overlap(own, *other)).sum();
            others + 10.0 * outside
        };
        let mut best = (near[0].0, false);
        let mut least = f64::INFINITY;
        for (at, is_far) in near.into_iter().chain(far) {
            let cost = cost(at);
            if cost + 1e-6 < least {
                (best, least) = ((at, is_far), cost);
            }
        }
        let ((x, baseline), far) = best;
        taken.push(bounds((x, baseline), wide));
        placed.push(LabelPosition { x, baseline, far });
    }
    placed
}

fn bounds((x, baseline): (f64, f64), wide: f64) -> Rect {
    let top = baseline - ASCENT;
    (x, top, x + wide, top + TEXT_HEIGHT)
}

/// Returns the area that two rectangles share.
fn overlap(a: Rect, b: Rect) -> f64 {
    let width = a.2.min(b.2) - a.0.max(b.0);
    let height = a.3.min(b.3) - a.1.max(b.1);
    width.max(0.0) * height.max(0.0)
}

/// Moves baselines apart until neighbours have the height of a text between them, within `from`
/// and `to` if there is room. Returns them in the given order.
pub(super) fn spread(baselines: &[f64], from: f64, to: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..baselines.len()).collect();
    order.sort_by(|a, b| baselines[*a].total_cmp(&baselines[*b]));
    let mut out = baselines.to_vec();
    let mut free = from;
    for at in &order {
        out[*at] = out[*at].max(free);
        free = out[*at] + TEXT_HEIGHT;
    }
    let mut free = to;
    for at in order.iter().rev() {
        out[*at] = out[*at].min(free);
        free = out[*at] - TEXT_HEIGHT;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_close_points_do_not_overlap() {
        let names: Vec<String> = (0..10).map(|n| format!("native:algorithm-{n}")).collect();
        let dots: Vec<(f64, f64)> = (0..10)
            .map(|n| (300.0 + f64::from(n), 80.0 - f64::from(n)))
            .collect();
        let labels: Vec<((f64, f64), &str)> = dots
            .iter()
            .copied()
            .zip(names.iter().map(String::as_str))
            .collect();
        let area = (50.0, 0.0, 750.0, 160.0);
        let placed = place(&labels, &dots, area);
        let boxes: Vec<Rect> = placed
            .iter()
            .zip(&names)
            .map(|(at, name)| bounds((at.x, at.baseline), width(name)))
            .collect();
        for (n, one) in boxes.iter().enumerate() {
            assert!(one.0 >= area.0 && one.2 <= area.2, "{one:?}");
            assert!(one.1 >= area.1 && one.3 <= area.3, "{one:?}");
            for other in &boxes[n + 1..] {
                assert!(overlap(*one, *other) < 1e-9, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_single_label_is_to_the_right_and_left_at_the_edge() {
        let area = (0.0, 0.0, 200.0, 100.0);
        let at = |x: f64| place(&[((x, 50.0), "reno")], &[(x, 50.0)], area)[0];
        assert_eq!(
            (at(50.0).x, at(50.0).baseline, at(50.0).far),
            (57.0, 54.0, false)
        );
        assert!((at(190.0).x - (183.0 - width("reno"))).abs() < 1e-9);
    }

    #[test]
    fn baselines_are_spread() {
        assert_eq!(spread(&[50.0, 52.0], 0.0, 100.0), [50.0, 64.0]);
        assert_eq!(spread(&[99.0, 98.0], 0.0, 100.0), [100.0, 86.0]);
        assert_eq!(spread(&[], 0.0, 100.0), [0.0; 0]);
    }
}
