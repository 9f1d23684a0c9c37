//! A square with the same scale on both sides, where the diagonal is what is wanted.

use crate::svg::{Anchor, MUTED, SMALL, Svg};

/// Left edge of the square.
pub(super) const LEFT: f64 = 62.0;
/// Upper edge of the square.
pub(super) const TOP: f64 = 14.0;

/// Draws grid, numbers, axes and the diagonal. `x` and `y` place a value; a tick is a value with its text.
pub(super) fn frame(
    svg: &mut Svg,
    side: f64,
    (x, y): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
    (low, high): (f64, f64),
    ticks: impl IntoIterator<Item = (f64, String)>,
) {
    for (tick, text) in ticks {
        svg.grid((x(tick), TOP), (x(tick), TOP + side));
        svg.grid((LEFT, y(tick)), (LEFT + side, y(tick)));
        svg.muted(x(tick), TOP + side + 18.0, Anchor::Middle, SMALL, &text);
        svg.muted(LEFT - 8.0, y(tick) + 4.0, Anchor::End, SMALL, &text);
    }
    svg.axis((LEFT, TOP + side), (LEFT + side, TOP + side));
    svg.axis((LEFT, TOP), (LEFT, TOP + side));
    svg.line(
        (x(low), y(low)),
        (x(high), y(high)),
        &format!(r#"class="diagonal" stroke="{MUTED}" stroke-width="1.5" stroke-dasharray="6 4""#),
    );
}
