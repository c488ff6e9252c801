//! A simulated browser: cookies, redirects and forms.

use reqwest::redirect::Policy;
use test_parties::BrowserCookies;

/// The action of a form, and its fields.
pub type FilledForm = (String, Vec<(String, String)>);

/// Follows redirects and submits the forms that `fill_form` fills in. It gets the path and the text of a
/// page, and returns `None` for the last page, which is returned. `ca` has the only certificates to trust.
pub async fn submit_forms(
    ca: Option<&[u8]>,
    start: &str,
    fill_form: impl Fn(&str, &str) -> Option<FilledForm>,
) -> String {
    trefoil_tui::install_crypto();
    let mut http = reqwest::Client::builder().redirect(Policy::none());
    if let Some(ca) = ca {
        http = http.tls_certs_only(reqwest::Certificate::from_pem_bundle(ca).unwrap());
    }
    let http = http.build().unwrap();
    let mut cookies = BrowserCookies::default();
    let mut request = http.get(start).build().unwrap();
    let server = request.url().origin();
    for _ in 0..20 {
        // The client, to which the browser returns, gets no cookies of the server.
        if request.url().origin() == server {
            request.headers_mut().insert("cookie", cookies.header().parse().unwrap());
        }
        let here = request.url().clone();
        let response = http.execute(request).await.unwrap();
        for cookie in response.headers().get_all("set-cookie") {
            cookies.keep(cookie.to_str().unwrap());
        }
        if let Some(location) = response.headers().get("location") {
            request = http.get(here.join(location.to_str().unwrap()).unwrap()).build().unwrap();
            continue;
        }
        let page = response.text().await.unwrap();
        let Some((action, fields)) = fill_form(here.path(), &page) else { return page };
        request = http.post(here.join(&action).unwrap()).form(&fields).build().unwrap();
    }
    panic!("the sign-in did not complete after the maximum number of pages");
}
