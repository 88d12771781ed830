//! Charts of probabilities over time, in three lines of text.

use std::fmt::Write as _;

const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ROWS: usize = 3;
const WIDTH: usize = 36;

/// Draws curves side by side with their titles. Values are between 0 and 1. If there are too many, each column shows its largest value.
pub(super) fn draw(curves: &[(String, &[f32])]) -> String {
    let columns: Vec<Vec<f32>> = curves.iter().map(|(_, values)| squeeze(values)).collect();
    let mut out = String::from("    ");
    for ((title, _), column) in curves.iter().zip(&columns) {
        let width = column.len().max(title.chars().count());
        let _ = write!(out, "{title:<width$}   ");
    }
    for (row, label) in ["1.0", "0.5", "0.0"].into_iter().enumerate() {
        let _ = write!(out, "\n{label} ");
        for ((title, _), column) in curves.iter().zip(&columns) {
            let line: String = column.iter().map(|v| cell(*v, ROWS - 1 - row)).collect();
            let width = title.chars().count();
            let _ = write!(out, "{line:<width$} | ");
        }
    }
    out
}

fn squeeze(values: &[f32]) -> Vec<f32> {
    let width = WIDTH.min(values.len()).max(1);
    let part = |n: usize| values.get(n * values.len() / width..(n + 1) * values.len() / width).unwrap_or_default();
    (0..width).map(|n| part(n).iter().copied().fold(0.0, f32::max)).collect()
}

/// The character for a value in a row, counted from the bottom.
fn cell(value: f32, row: usize) -> char {
    let steps = LEVELS.len() - 1;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "0 to 24")]
    let height = (value.clamp(0.0, 1.0) * (ROWS * steps) as f32).round() as usize;
    // The bottom line always shows the extent of the curve.
    let least = usize::from(row == 0);
    LEVELS.get(height.saturating_sub(row * steps).clamp(least, steps)).copied().unwrap_or(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_values_fill_all_rows_and_low_ones_only_the_lowest() {
        let drawn = draw(&[("speech".to_owned(), &[0.0, 0.5, 1.0]), ("x".to_owned(), &[0.1])]);
        assert_eq!(drawn, "    speech   x   \n1.0   █    |   | \n0.5  ▄█    |   | \n0.0 ▁██    | ▂ | ");
    }
}
