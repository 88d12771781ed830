//! Drawings as inline SVG: axes, lines, bars. Colours are classes, so that the page defines them for light and for dark.

use std::fmt::Write as _;

/// Size of a drawing, and margins for its labels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// An axis: its range and its marks. Values are in the drawing's unit (a logarithm, for example); labels give their meaning.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) marks: Vec<(f64, String)>,
}

/// One line of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlotLine {
    pub(super) name: String,
    /// The number of its colour.
    pub(super) class: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// A group of bars: a label, and for each bar its class, its value and its title.
pub(super) type Group = (String, Vec<(usize, f64, String)>);

impl Axis {
    /// From 0 to at least `most`, with round marks.
    pub(super) fn from_zero(title: &str, most: f64, label: impl Fn(f64) -> String) -> Axis {
        let most = most.max(1e-9);
        let step = round_step(most / 5.0);
        let marks: Vec<f64> = (0..=6).map(|n| f64::from(n) * step).take_while(|v| *v < most + step).collect();
        let to = marks.last().copied().unwrap_or(step).max(step);
        Axis { title: title.to_owned(), from: 0.0, to, marks: marks.into_iter().map(|v| (v, label(v))).collect() }
    }

    /// Ends the axis at this value, with or without a mark there.
    pub(super) fn until(self, to: f64) -> Axis {
        let marks = self.marks.into_iter().filter(|(v, _)| *v <= to * (1.0 + 1e-9)).collect();
        Axis { to, marks, ..self }
    }

    fn share(&self, value: f64) -> f64 {
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

/// The smallest of 1, 2, 5, 10, 20, … that is at least this.
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|n| n * decade).find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

fn x_of(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)
}

fn y_of(axis: &Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)
}

/// Lines over two axes.
pub(super) fn lines(about: &str, x: &Axis, y: &Axis, lines: &[PlotLine]) -> String {
    let mut out = open(about, HEIGHT);
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (value, label) in &y.marks {
        let at = y_of(y, *value);
        let _ = write!(out, "<path class=\"grid\" d=\"M{LEFT:.1} {at:.1}H{right:.1}\"/>");
        let _ =
            write!(out, "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", LEFT - 6.0, at + 4.0, escape(label));
    }
    for (value, label) in &x.marks {
        let at = x_of(x, *value);
        let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP:.1}V{bottom:.1}\"/>");
        let _ = write!(out, "<text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>", bottom + 16.0, escape(label));
    }
    let _ = write!(
        out,
        "<text class=\"mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0,
        escape(&x.title)
    );
    let (middle, title) = ((TOP + bottom) / 2.0, escape(&y.title));
    let _ = write!(
        out,
        "<text class=\"mid\" x=\"14\" y=\"{middle:.1}\" transform=\"rotate(-90 14 {middle:.1})\">{title}</text>"
    );
    for line in lines {
        let points: Vec<String> =
            line.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x_of(x, *a), y_of(y, *b))).collect();
        let (class, name) = (class(line.class), escape(&line.name));
        // Lines that overlap stay visible: the first ones are the widest.
        let wide = (4.0 - line.class as f64).max(1.5);
        let _ = write!(
            out,
            "<polyline class=\"line {class}\" stroke-width=\"{wide}\" points=\"{}\"><title>{name}</title></polyline>",
            points.join(" ")
        );
    }
    out + "</svg>\n"
}

/// Horizontal bars, group under group.
pub(super) fn bars(about: &str, x: &Axis, groups: &[Group]) -> String {
    let (bar, gap) = (14.0, 12.0);
    let tall: f64 = groups.iter().map(|(_, bars)| bars.len() as f64 * bar + gap).sum();
    let height = tall + TOP + BOTTOM;
    let mut out = open(about, height);
    let bottom = height - BOTTOM;
    for (value, label) in &x.marks {
        let at = bar_x(x, *value);
        let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP:.1}V{bottom:.1}\"/>");
        let _ = write!(out, "<text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>", bottom + 16.0, escape(label));
    }
    let _ = write!(
        out,
        "<text class=\"mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        WIDTH / 2.0,
        height - 8.0,
        escape(&x.title)
    );
    let mut y = TOP;
    for (label, bars) in groups {
        let middle = y + bars.len() as f64 * bar / 2.0 + 4.0;
        let _ =
            write!(out, "<text class=\"end\" x=\"{:.1}\" y=\"{middle:.1}\">{}</text>", BARS_LEFT - 6.0, escape(label));
        for (n, value, says) in bars {
            let wide = bar_x(x, *value) - BARS_LEFT;
            let (class, says) = (class(*n), escape(says));
            let _ = write!(
                out,
                "<rect class=\"bar {class}\" x=\"{BARS_LEFT:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"><title>{says}</title></rect>",
                bar - 2.0
            );
            y += bar;
        }
        y += gap;
    }
    out + "</svg>\n"
}

/// Left margin of bars, because their labels are longer than numbers.
const BARS_LEFT: f64 = 120.0;

fn bar_x(axis: &Axis, value: f64) -> f64 {
    BARS_LEFT + axis.share(value) * (WIDTH - BARS_LEFT - RIGHT - 24.0)
}

fn open(about: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">", escape(about))
}

/// The class of the n-th colour. Beyond the palette, lines are dashed.
pub(super) fn class(n: usize) -> String {
    let colour = n % COLOURS;
    if n < COLOURS { format!("c{colour}") } else { format!("c{colour} dashed") }
}

/// Number of colours of the page.
pub(super) const COLOURS: usize = 7;

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_reach_over_the_most() {
        let marks = |most: f64| {
            Axis::from_zero("", most, |v| format!("{v:.2}")).marks.into_iter().map(|(v, _)| v).collect::<Vec<_>>()
        };
        assert_eq!(marks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(marks(31.0), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert!(marks(0.0).len() >= 2);
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
