//! Delimiters, and the padding of spreadsheet programs.

/// The delimiters that spreadsheet programs use. The semicolon is that of countries with a decimal comma.
const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// The delimiter of a table: the one that divides the line of its headings most often, outside of quotes. A
/// line of one heading has a comma.
pub fn delimiter_of(headings: &str) -> u8 {
    let mut counts = [0_usize; DELIMITERS.len()];
    let mut in_quotes = false;
    for byte in headings.bytes() {
        in_quotes ^= byte == b'"';
        if let Some(at) = DELIMITERS.iter().position(|delimiter| *delimiter == byte && !in_quotes) {
            counts[at] += 1;
        }
    }
    // `max_by_key` returns the last of several maxima, which in this order is the comma.
    let most = (0..DELIMITERS.len()).rev().max_by_key(|at| counts[*at]).unwrap_or_default();
    DELIMITERS[most]
}

/// A line outside of the table, such as `# version: 2026,,`, without the empty fields and the quotes that
/// spreadsheet programs add.
pub fn without_padding(line: &str) -> String {
    let delimiters = |c: char| c.is_ascii() && DELIMITERS.contains(&(c as u8));
    let text = line.trim_end_matches(['\r', '\n']).trim_end_matches(|c| delimiters(c) || c == ' ');
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headings_show_the_delimiter() {
        for (line, expected) in [
            ("code,display,parent", b','),
            ("code;display;parent", b';'),
            ("code\tdisplay", b'\t'),
            ("code", b','),
            ("code;\"a, b, c\";d", b';'),
            ("", b','),
        ] {
            assert_eq!(delimiter_of(line), expected, "{line}");
        }
    }

    #[test]
    fn padding_and_quotes_of_other_lines_are_removed() {
        for (line, expected) in [
            ("# url: https://example.org/st2,,\r\n", "# url: https://example.org/st2"),
            ("# version: 2026;;;\n", "# version: 2026"),
            ("\"# title: Dances, \"\"old\"\"\",,\n", "# title: Dances, \"old\""),
            ("# title: Dances\n", "# title: Dances"),
            (",,,\n", ""),
        ] {
            assert_eq!(without_padding(line), expected);
        }
    }
}
