//! The cookies that a browser sent: the session, the browser before any sign-in, the device in which a user
//! has signed in before (see `identity::sign_in::throttle`), and the language of the pages.

use http::{HeaderMap, header};

/// Length of the value of the browser cookie: 256 random bits in base64url.
const BROWSER_LENGTH: usize = 43;

/// The names of the cookies.
///
/// The prefix `__Host-` binds them to this host and to HTTPS. With `--insecure-http` it is left out, because
/// browsers would reject it.
pub struct CookieNames {
    /// The session of a signed-in user.
    pub session: &'static str,
    /// The browser, also before any sign-in.
    pub browser: &'static str,
    /// The device in which a user has signed in before.
    pub device: &'static str,
    /// The language that the user has chosen for the pages.
    pub language: &'static str,
}

impl CookieNames {
    /// The names for HTTPS or plain HTTP.
    pub fn of(is_https: bool) -> &'static Self {
        const HTTPS: &CookieNames = &CookieNames {
            session: "__Host-trefoil",
            browser: "__Host-trefoil-browser",
            device: "__Host-trefoil-device",
            language: "__Host-trefoil-language",
        };
        const HTTP: &CookieNames = &CookieNames {
            session: "trefoil",
            browser: "trefoil-browser",
            device: "trefoil-device",
            language: "trefoil-language",
        };
        if is_https { HTTPS } else { HTTP }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see CookieNames")]
pub struct BrowserCookies {
    pub session: Option<String>,
    pub browser: Option<String>,
    pub device: Option<String>,
    pub language: Option<String>,
}

impl BrowserCookies {
    /// Reads the cookies. Of several with the same name, the first counts.
    pub fn read(headers: &HeaderMap, is_https: bool) -> Self {
        let names = CookieNames::of(is_https);
        let mut cookies = Self::default();
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in
            lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
        {
            let cookie = match name {
                _ if name == names.session => &mut cookies.session,
                _ if name == names.browser => &mut cookies.browser,
                _ if name == names.device => &mut cookies.device,
                _ if name == names.language => &mut cookies.language,
                _ => continue,
            };
            cookie.get_or_insert_with(|| value.to_owned());
        }
        cookies.browser.take_if(|value| value.len() != BROWSER_LENGTH);
        cookies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cookie_of_a_name_counts_and_a_short_browser_cookie_does_not() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=b; trefoil=one; trefoil-browser=short".parse().unwrap());
        headers.append(header::COOKIE, "trefoil=two; trefoil-device=d".parse().unwrap());
        let read = BrowserCookies::read(&headers, false);
        let one = |text: &str| Some(text.to_owned());
        assert_eq!(
            read,
            BrowserCookies { session: one("one"), device: one("d"), ..BrowserCookies::default() }
        );
        assert_eq!(BrowserCookies::read(&headers, true), BrowserCookies::default());
    }
}
