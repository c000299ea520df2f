//! Text on its way into the page.

use maud::Render;

use crate::plain;

/// Text that a user or a server may have chosen. Besides what HTML needs, which maud escapes, control characters and those that
/// reorder text become visible, and overlong text is cut, as on a terminal.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Render for Shown<'_> {
    fn render_to(&self, buffer: &mut String) {
        plain::line(self.0).as_ref().render_to(buffer);
    }
}

/// A moment of the wall clock in UTC, from milliseconds since 1970: `2026-11-21 16:08:16 UTC`.
///
/// The days are counted as in Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms" (civil_from_days).
pub(crate) fn moment(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (d, m) = (
        of_year - (153 * shifted + 2) / 5 + 1,
        if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        },
    );
    let year = year_of_era + era * 400 + u64::from(m <= 2);
    let (h, min, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{m:02}-{d:02} {h:02}:{min:02}:{s:02} UTC")
}
