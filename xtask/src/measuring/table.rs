//! A table that reads well both as Markdown and on a terminal.

/// A table under way.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With its heads.
    pub fn new(heads: &[&str]) -> Self {
        let heads = heads.iter().map(|&head| head.to_owned()).collect();
        Table { rows: vec![heads] }
    }

    /// Adds a row; a missing cell is empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The first column to the left, all others to the right.
    pub fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let widths = self
                    .rows
                    .iter()
                    .map(|row| cell(row, column).chars().count());
                widths.max().unwrap_or(0).max(3)
            })
            .collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, &width) in widths.iter().enumerate() {
                let cell = cell(row, column);
                text.push_str(&match column {
                    0 => format!("| {cell:<width$} |"),
                    _ => format!(" {cell:>width$} |"),
                });
            }
            text.push('\n');
            if index == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    text.push_str(&match column {
                        0 => format!("|{}|", "-".repeat(width + 2)),
                        _ => format!("{}:|", "-".repeat(width + 1)),
                    });
                }
                text.push('\n');
            }
        }
        text
    }
}

/// `1234567` → `1,234,567`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number <= -0.5 {
        format!("−{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["peer", "µs"]);
        table.row(vec!["wrk".to_owned(), "5.25".to_owned()]);
        table.row(vec!["ab".to_owned()]);
        assert_eq!(
            table.markdown(),
            "| peer |   µs |\n|------|-----:|\n| wrk  | 5.25 |\n| ab   |      |\n"
        );
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-12_345.0), "−12,345");
        assert_eq!(grouped(-0.2), "0");
    }
}
