//! The text of an HTML page, for messages about answers that are meant for a browser.

/// Maximum number of characters of the text.
const MAX_TEXT: usize = 200;
/// Elements whose text is not part of the message of a page.
const HIDDEN: [&str; 8] = ["script", "style", "head", "svg", "nav", "header", "footer", "details"];

/// The text of a page that people read, shortened. Buttons are left out.
pub(super) fn page_text(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        let begins = |name: &&str| {
            tag.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
                && !tag[name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric())
        };
        let attributes = tag.split('>').next().unwrap_or_default();
        let is_button = ["button", "btn"].iter().any(|class| attributes.contains(class));
        let button = ["button", "a"].iter().filter(|_| is_button);
        let hidden = HIDDEN.iter().chain(button).find(|name| begins(name));
        let end = hidden.and_then(|name| tag.find(&format!("</{name}"))).map_or(tag, |end| &tag[end..]);
        rest = end.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_page_is_what_people_read() {
        let html = "<!doctype html><html><head><title>Error</title><style>a{}</style></head>\
                    <body><header>My server</header><h1>Unknown client</h1><script>1<2</script>\
                    <p>It is not\n <a href=x>registered</a>.</p><p><a class='button' href='/'>Back</a></p>\
                    <details><summary>More</summary></details></body>";
        assert_eq!(page_text(html), "Unknown client It is not registered .");
        assert_eq!(page_text("plain"), "plain");
        assert_eq!(page_text("<").len(), 0);
        assert_eq!(page_text(&"é".repeat(500)).chars().count(), MAX_TEXT);
    }
}
