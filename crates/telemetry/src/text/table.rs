//! Renders rows in columns.

/// Spaces between two columns.
const GAP: usize = 2;

/// Renders rows under their heads. Each column is as wide as its widest cell. The last column has no trailing spaces. If the next head is
/// empty, a head spans both columns.
pub fn table(heads: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    let heads: Vec<&str> = heads.iter().map(AsRef::as_ref).collect();
    let stops = stops(&heads, rows);
    let heads_at = heads.iter().copied().zip(&stops).filter(|(head, _)| !head.is_empty());
    let mut out = line(heads_at);
    for row in rows {
        out += &line(row.as_ref().iter().map(String::as_str).zip(&stops));
    }
    out
}

/// The offset of each column.
fn stops(heads: &[&str], rows: &[impl AsRef<[String]>]) -> Vec<usize> {
    let spans = |n: usize| heads.get(n + 1).is_some_and(|next| next.is_empty());
    let cells =
        |n: usize| rows.iter().filter_map(|row| row.as_ref().get(n)).map(|cell| length(cell)).max().unwrap_or(0);
    let (mut stops, mut at) = (Vec::with_capacity(heads.len()), 0);
    // The part of a spanning head that exceeds its first column.
    let mut over = 0;
    for (n, head) in heads.iter().enumerate() {
        stops.push(at);
        let width = if spans(n) { cells(n) } else { cells(n).max(length(head)).max(over) };
        over = if spans(n) { length(head).saturating_sub(width + GAP) } else { 0 };
        at += width + GAP;
    }
    stops
}

/// Renders cells, each at its stop.
fn line<'a>(cells: impl Iterator<Item = (&'a str, &'a usize)>) -> String {
    let mut line = String::new();
    for (cell, stop) in cells {
        line += &" ".repeat(stop.saturating_sub(length(&line)));
        line += cell;
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const N: usize>(rows: &[[&str; N]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let two = rows(&[["a", "long cell"], ["longer", "b"]]);
        assert_eq!(table(&["X", "Y"], &two), "X       Y\na       long cell\nlonger  b\n");
        assert_eq!(table(&["X", "Y"], &rows::<2>(&[])), "X  Y\n");
        assert_eq!(table(&["X", "Y"], &rows(&[["", "b"], ["a", ""]])), "X  Y\n   b\na\n");
    }

    #[test]
    fn a_head_without_a_right_neighbour_spans_two_columns() {
        let rows = rows(&[["x", "y", "z", "w"], ["1", "two", "3", "4"]]);
        let text = table(&["A", "LONG TITLE", "", "B"], &rows);
        assert_eq!(text, "A  LONG TITLE  B\nx  y    z      w\n1  two  3      4\n");
    }
}
