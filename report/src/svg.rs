//! A small SVG writer: escaping, widths of text, and colours that hold in print and for colour-blind readers.
//!
//! Colours are written as attributes, so that a figure stands alone, and every element has a class, so that the page
//! may recolour ink and grid for a dark screen.

use elastico_core::Digest;
use std::fmt::{Display, Write as _};

/// Dark ink for text on light grounds.
pub(crate) const INK: &str = "#1f2328";
/// Secondary text: 4.5:1 on white at least.
pub(crate) const MUTED: &str = "#57606a";
/// Axes and grid lines.
pub(crate) const GRID: &str = "#d0d7de";
/// First colour of two: blue and orange stay apart in all common forms of colour blindness.
pub(crate) const BLUE: &str = "#0b62b0";
/// Second colour of two.
pub(crate) const ORANGE: &str = "#b8500a";
/// Size of text; the page never scales a figure below its natural width.
pub(crate) const TEXT: f64 = 13.0;
/// Size of text of less weight.
pub(crate) const SMALL: f64 = 12.0;

/// Escapes a text for element content and quoted attributes; control characters have no place in XML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            other if other.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&other) => {
                escaped.push('\u{fffd}');
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// A generous estimate of a text's width: that of DejaVu Sans, the widest of the faces asked for.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|character| match character {
            'i' | 'j' | 'l' | '.' | ',' | '\'' | '|' | '!' | ':' | ';' | ' ' => 0.35,
            'f' | 't' | 'r' | '(' | ')' | '-' | '[' | ']' => 0.42,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.97,
            'A'..='Z' => 0.7,
            other if other.is_ascii() => 0.63,
            other if (other as u32) < 0x1100 => 0.66,
            _ => 1.0,
        })
        .sum();
    ems * size
}

/// The text, cut in the middle to fit a width: ids differ at both ends.
pub(crate) fn fit(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let characters: Vec<char> = text.chars().collect();
    for keep in (2..characters.len()).rev() {
        let head = keep.div_ceil(2);
        let short: String = characters[..head]
            .iter()
            .chain(std::iter::once(&'…'))
            .chain(&characters[characters.len() - (keep - head)..])
            .collect();
        if text_width(&short, size) <= width {
            return short;
        }
    }
    "…".to_owned()
}

/// The sequential colour map, 0 to 1: near white over straw to light orange. Lightness falls all the way, so that it
/// survives grey print, and dark ink keeps more than 7:1 on its darkest colour.
pub(crate) fn warm(position: f64) -> String {
    const STOPS: [[f64; 3]; 4] =
        [[255.0, 255.0, 250.0], [255.0, 240.0, 190.0], [254.0, 205.0, 120.0], [246.0, 152.0, 78.0]];
    let scaled = position.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let below = (scaled.floor() as usize).min(STOPS.len() - 2);
    let share = scaled - below as f64;
    let mix = |channel: usize| {
        (STOPS[below][channel] + (STOPS[below + 1][channel] - STOPS[below][channel]) * share).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// Where a text is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// One drawing in progress.
#[derive(Debug)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
    hatch: Option<String>,
}

impl Svg {
    /// An empty drawing of a natural size in pixels; `label` is what a screen reader says.
    pub(crate) fn new(width: f64, height: f64, label: impl Into<String>) -> Self {
        Self {
            width: width.ceil(),
            height: height.ceil(),
            label: label.into(),
            body: String::new(),
            hatch: None,
        }
    }

    /// The natural width.
    pub(crate) const fn width(&self) -> f64 {
        self.width
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, style: &str) {
        self.push(format_args!(
            r#"<rect x="{}" y="{}" width="{}" height="{}" {style}/>"#,
            short(x),
            short(y),
            short(width.max(0.0)),
            short(height.max(0.0))
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        self.push(format_args!(
            r#"<line x1="{}" y1="{}" x2="{}" y2="{}" {style}/>"#,
            short(from.0),
            short(from.1),
            short(to.0),
            short(to.1)
        ));
    }

    pub(crate) fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.line(from, to, &format!(r#"class="grid" stroke="{GRID}""#));
    }

    pub(crate) fn axis(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.line(from, to, &format!(r#"class="axis" stroke="{MUTED}""#));
    }

    pub(crate) fn path(&mut self, data: &str, style: &str) {
        self.push(format_args!(r#"<path d="{data}" {style}/>"#));
    }

    pub(crate) fn circle(&mut self, x: f64, y: f64, radius: f64, style: &str) {
        self.push(format_args!(
            r#"<circle cx="{}" cy="{}" r="{}" {style}/>"#,
            short(x),
            short(y),
            short(radius)
        ));
    }

    /// Ink-coloured text.
    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, size: f64, text: &str) {
        self.styled(x, y, anchor, size, &format!(r#"class="ink" fill="{INK}""#), text);
    }

    /// Grey text.
    pub(crate) fn muted(&mut self, x: f64, y: f64, anchor: Anchor, size: f64, text: &str) {
        self.styled(x, y, anchor, size, &format!(r#"class="muted" fill="{MUTED}""#), text);
    }

    /// Bold ink-coloured text.
    pub(crate) fn heading(&mut self, x: f64, y: f64, text: &str) {
        self.styled(
            x,
            y,
            Anchor::Start,
            TEXT,
            &format!(r#"class="ink" fill="{INK}" font-weight="600""#),
            text,
        );
    }

    /// Text with attributes of its own.
    pub(crate) fn styled(&mut self, x: f64, y: f64, anchor: Anchor, size: f64, style: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.push(format_args!(
            r#"<text x="{}" y="{}"{anchor} font-size="{}" {style}>{}</text>"#,
            short(x),
            short(y),
            short(size),
            escape(text)
        ));
    }

    /// Opens a group whose tooltip is `title`.
    pub(crate) fn open(&mut self, title: &str) {
        self.push(format_args!("<g><title>{}</title>", escape(title)));
    }

    pub(crate) fn close(&mut self) {
        self.push("</g>");
    }

    /// A fill of diagonal lines for what is not there, unique to this drawing.
    pub(crate) fn hatch(&mut self) -> String {
        let id =
            self.hatch.get_or_insert_with(|| format!("hatch-{}", Digest::of([&self.label]).short())).clone();
        format!(r#"class="absent" fill="url(#{id})""#)
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The finished element. It scales with its box and has a natural width that the page keeps as its least one.
    pub(crate) fn finish(self) -> String {
        let Self { width, height, label, body, hatch } = self;
        let label = escape(&label);
        let pattern = hatch.map_or(String::new(), |id| {
            format!(
                concat!(
                    r#"<defs><pattern id="{}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">"#,
                    r##"<rect width="7" height="7" fill="#f6f8fa"/><line x1="0" y1="0" x2="0" y2="7" stroke="#c8d1da" stroke-width="2"/>"##,
                    "</pattern></defs>\n"
                ),
                id
            )
        });
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" "#,
                r#"role="img" aria-label="{label}" font-family="system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif">"#,
                "\n{pattern}{body}</svg>"
            ),
            width = width,
            height = height,
            label = label,
            pattern = pattern,
            body = body
        )
    }
}

/// A coordinate with at most two decimals.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Boxes already taken, to keep labels apart.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<[f64; 4]>);

impl Taken {
    /// Marks a box `x, y, width, height` as taken.
    pub(crate) fn add(&mut self, x: f64, y: f64, width: f64, height: f64) {
        self.0.push([x, y, width, height]);
    }

    /// Finds a free place for a text beside a point, inside `bounds` = left, top, right, bottom; marks it and gives its
    /// baseline start.
    pub(crate) fn place(
        &mut self,
        point: (f64, f64),
        width: f64,
        size: f64,
        bounds: [f64; 4],
    ) -> Option<(f64, f64)> {
        let height = size * 1.15;
        let near = 8.0;
        let candidates = [
            (point.0 + near, point.1 - height / 2.0),
            (point.0 - near - width, point.1 - height / 2.0),
            (point.0 - width / 2.0, point.1 - near - height),
            (point.0 - width / 2.0, point.1 + near),
            (point.0 + near, point.1 - near - height),
            (point.0 + near, point.1 + near),
            (point.0 - near - width, point.1 - near - height),
            (point.0 - near - width, point.1 + near),
        ];
        let free = candidates.into_iter().find(|(x, y)| {
            *x >= bounds[0]
                && *y >= bounds[1]
                && x + width <= bounds[2]
                && y + height <= bounds[3]
                && !self.0.iter().any(|[left, top, other_width, other_height]| {
                    *x < left + other_width
                        && *left < x + width
                        && *y < top + other_height
                        && *top < y + height
                })
        })?;
        self.add(free.0, free.1, width, height);
        Some((free.0, free.1 + size * 0.9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escape("<b>&\"'\u{7}"), "&lt;b&gt;&amp;&quot;&#39;\u{fffd}");
        let mut svg = Svg::new(10.0, 10.0, "a \"label\" <x>");
        svg.text(0.0, 0.0, Anchor::Start, 12.0, "</text><script>");
        let text = svg.finish();
        assert!(!text.contains("<script>") && !text.contains("<x>"));
    }

    #[test]
    fn long_texts_are_cut_in_the_middle() {
        assert_eq!(fit("short", 12.0, 100.0), "short");
        let cut = fit("tr_block.b8_s1024_h1024_bf16", 12.0, 90.0);
        assert!(cut.starts_with("tr_bl") && cut.ends_with("f16") && text_width(&cut, 12.0) <= 90.0, "{cut}");
    }

    #[test]
    fn the_colour_map_darkens_all_the_way_and_stays_light() {
        let lightness = |position: f64| {
            let colour = warm(position);
            let channel = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap());
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let values: Vec<f64> = (0..=20).map(|index| lightness(f64::from(index) / 20.0)).collect();
        assert!(values.is_sorted_by(|a, b| a > b));
        assert!(values[20] > 150.0);
    }

    #[test]
    fn placed_labels_never_overlap() {
        let mut taken = Taken::default();
        let bounds = [0.0, 0.0, 300.0, 300.0];
        let placed: Vec<_> =
            (0..40).filter_map(|_| taken.place((150.0, 150.0), 40.0, 12.0, bounds)).collect();
        assert!((2..=8).contains(&placed.len()));
    }
}
