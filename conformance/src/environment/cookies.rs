//! The cookies of a simulated browser, with their paths, domains and expiry (RFC 6265).

use cookie_store::{CookieStore, RawCookie};
use http::{HeaderMap, HeaderValue, header};
use url::Url;

/// Cookies of one browser.
#[derive(Debug, Clone, Default)]
pub struct CookieJar {
    store: CookieStore,
    /// Whether a form with a password was answered with 307 or 308, so that a browser sends it again.
    pub sent_password_twice: bool,
}

impl CookieJar {
    /// An empty jar.
    pub fn new() -> Self {
        Self::default()
    }

    /// The `Cookie` header of a request; `None` if no cookie belongs to the URL.
    pub fn header(&self, url: &Url) -> Option<HeaderValue> {
        let pairs: Vec<_> =
            self.store.get_request_values(url).map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() {
            return None;
        }
        HeaderValue::from_str(&pairs.join("; ")).ok()
    }

    /// Stores and deletes cookies as the `Set-Cookie` headers of a response from `url` state.
    pub fn keep(&mut self, url: &Url, headers: &HeaderMap) {
        let values = headers.get_all(header::SET_COOKIE).iter();
        let cookies = values.filter_map(|value| {
            RawCookie::parse(String::from_utf8_lossy(value.as_bytes()).into_owned()).ok()
        });
        self.store.store_response_cookies(cookies, url);
    }

    /// Returns whether scripts can read all cookies: none has `HttpOnly`.
    pub fn are_readable(&self) -> bool {
        self.store.iter_unexpired().all(|cookie| cookie.http_only() != Some(true))
    }

    /// The names and values of the cookies that a script of the page at `url` can read.
    pub fn readable(&self, url: &Url) -> impl Iterator<Item = (String, String)> {
        let cookies = self.store.matches(url).into_iter().filter(|cookie| cookie.http_only() != Some(true));
        cookies.map(|cookie| (cookie.name().to_owned(), cookie.value().to_owned()))
    }

    /// The values of all cookies.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.store.iter_unexpired().map(|cookie| cookie.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_belong_to_paths_and_end() {
        let mut jar = CookieJar::new();
        let url = |path: &str| Url::parse(&format!("https://a.example{path}")).unwrap();
        let mut set = |cookie: &'static str| {
            let headers = HeaderMap::from_iter([(header::SET_COOKIE, HeaderValue::from_static(cookie))]);
            jar.keep(&url("/interaction/1"), &headers);
            jar.clone()
        };
        set("a=1; Path=/");
        let jar_with_path = set("b=2; Path=/interaction/1; HttpOnly");
        assert_eq!(jar_with_path.header(&url("/interaction/1")).unwrap().len(), "a=1; b=2".len());
        assert_eq!(jar_with_path.header(&url("/")).unwrap(), "a=1");
        assert_eq!(set("a=; Path=/; Max-Age=0").header(&url("/")), None);
    }
}
