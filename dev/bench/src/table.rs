//! Markdown tables that are readable as plain text.

/// Placeholder for a figure that was not measured.
pub const DASH: &str = "–";

/// Formats a figure, or returns [`DASH`] if the figure was not measured.
pub fn cell<T>(figure: Option<T>, text: impl FnOnce(T) -> String) -> String {
    figure.map_or(DASH.to_owned(), text)
}

/// Returns a Markdown table. The headings in `heads` are separated by ` | `. The first column is
/// left-aligned, and all others are right-aligned. Missing cells are empty.
pub fn table(heads: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let heads = heads.split(" | ").map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).fold(3, usize::max)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut lines = rows.iter().map(|row| {
        let cells = widths.iter().enumerate().map(|(column, &width)| {
            let cell = row.get(column).map_or("", String::as_str);
            match column {
                0 => format!("| {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            }
        });
        cells.collect::<String>() + "\n"
    });
    let heads = lines.next().unwrap_or_default();
    let rule: String = widths[1..]
        .iter()
        .map(|width| "-".repeat(width + 1) + ":|")
        .collect();
    let first = "-".repeat(widths[0] + 2);
    format!("{heads}|{first}|{rule}\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns() {
        let rows = [
            vec!["wrk".to_owned(), "5.25".to_owned()],
            vec!["ab".to_owned()],
        ];
        assert_eq!(
            table("peer | µs", rows),
            "| peer |   µs |\n|------|-----:|\n| wrk  | 5.25 |\n| ab   |      |\n"
        );
    }
}
