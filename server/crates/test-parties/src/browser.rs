//! Cookies, forms and redirects of a simulated browser, whatever sends its requests.

use url::Url;

/// The cookies of a browser.
#[derive(Debug, Default, Clone)]
pub struct BrowserCookies(Vec<(String, String)>);

impl BrowserCookies {
    /// The value of `Cookie` of the next request.
    pub fn header(&self) -> String {
        let pairs: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }

    /// Keeps the cookie of a `Set-Cookie`, or removes it if its lifetime is zero.
    pub fn keep(&mut self, set_cookie: &str) {
        let Some((name, value)) = set_cookie.split(';').next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        self.0.retain(|(known, _)| known != name);
        if !set_cookie.contains("Max-Age=0") {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The names of the cookies.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Keeps the cookies whose names are accepted.
    pub fn retain(&mut self, accepts: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| accepts(name));
    }
}

/// The names and values of the hidden fields of the first form of a page.
pub fn hidden_fields(page: &str) -> Vec<(String, String)> {
    let value = |tag: &str, name: &str| {
        let rest = tag.split(&format!("{name}=\"")).nth(1)?;
        Some(rest.split('"').next()?.replace("&amp;", "&"))
    };
    let form = page.split("</form>").next().unwrap_or_default();
    let tags = form.split("<input ").skip(1).filter(|tag| tag.contains("type=\"hidden\""));
    tags.filter_map(|tag| Some((value(tag, "name")?, value(tag, "value")?))).collect()
}

/// A parameter of a redirect URI, in its query or its fragment.
pub fn answer_parameter(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let mut in_fragment = url.clone();
    in_fragment.set_query(url.fragment());
    [url, in_fragment]
        .iter()
        .find_map(|url| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_kept_replaced_and_removed() {
        let mut cookies = BrowserCookies::default();
        for set in ["a=1; Path=/", "b=2; HttpOnly", "a=3", "b=; Max-Age=0"] {
            cookies.keep(set);
        }
        assert_eq!(cookies.header(), "a=3");
    }

    #[test]
    fn parameters_are_read_from_query_and_fragment() {
        assert_eq!(answer_parameter("https://app.example/?code=a%20b", "code").as_deref(), Some("a b"));
        assert_eq!(answer_parameter("https://app.example/#state=x", "state").as_deref(), Some("x"));
        assert_eq!(answer_parameter("https://app.example/#state=x", "code"), None);
    }

    #[test]
    fn hidden_fields_are_those_of_the_first_form() {
        let page = r#"<form><input type="hidden" name="csrf" value="a&amp;b"><input name="username"></form>
                      <form><input type="hidden" name="other" value="c"></form>"#;
        assert_eq!(hidden_fields(page), [("csrf".to_owned(), "a&b".to_owned())]);
    }
}
