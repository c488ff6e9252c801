//! Browsers: sign-in with PKCE, at the server and at a provider.

use sha2::{Digest as _, Sha256};
use test_parties::{BrowserCookies, answer_parameter, base64url, hidden_fields};
use url::Url;

use crate::history::Action;
use crate::nodes::{Answer, ClientRequest};
use crate::registration::{APP, REDIRECT};
use crate::workload::{AUTHORIZATION, Workload};

/// Number of redirects and pages after which a browser gives up.
const STEPS: usize = 8;

/// A browser with its cookies.
#[derive(Default)]
pub struct Browser {
    cookies: BrowserCookies,
    /// Hidden fields of the open page.
    fields: Vec<(String, String)>,
}

impl Browser {
    /// Forgets all cookies.
    pub fn clear(&mut self) {
        self.cookies = BrowserCookies::default();
    }

    /// Sends a request to a node, or to the balancer.
    pub(crate) async fn request(
        &self,
        workload: &Workload,
        node: Option<usize>,
        action: Action,
        expected: &[u16],
        request: ClientRequest,
    ) -> Answer {
        let request = request.header("cookie", &self.cookies.header()).header("origin", &workload.base);
        workload.ask(node, action, expected, request).await
    }

    /// Sends a request as [`Browser::request`] does, and keeps the cookies of the answer.
    pub(crate) async fn send(
        &mut self,
        workload: &Workload,
        node: Option<usize>,
        action: Action,
        expected: &[u16],
        request: ClientRequest,
    ) -> Answer {
        let response = self.request(workload, node, action, expected, request).await;
        for set in response.headers.get_all("set-cookie") {
            self.cookies.keep(set.to_str().unwrap_or_default());
        }
        response
    }

    /// Sends a request of a sign-in to any node.
    async fn ask(&mut self, workload: &Workload, name: &'static str, request: ClientRequest) -> Answer {
        let (node, expected) = (workload.any_target(), [200, 302, 303, 502, 504]);
        self.send(workload, node, Action::Other(name), &expected, request).await
    }

    /// Opens a page, and keeps the hidden fields of its first form.
    pub(crate) async fn open(&mut self, workload: &Workload, node: Option<usize>, path: &str) -> Option<()> {
        let response =
            self.send(workload, node, Action::Other("page"), &[200], ClientRequest::get(path)).await;
        self.fields = hidden_fields(response.body.as_str().filter(|_| response.is(200))?);
        Some(())
    }

    /// A form of the open page with further fields.
    pub(crate) fn form(&self, path: &str, fields: &[(&str, &str)]) -> ClientRequest {
        let mut form: Vec<_> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        form.extend(fields);
        ClientRequest::form(path, &form)
    }

    /// Signs in, unless the browser has a session. Returns the code.
    pub async fn authorize(
        &mut self,
        workload: &Workload,
        verifier: &str,
        provider: Option<&str>,
    ) -> Option<String> {
        let challenge = base64url(Sha256::digest(verifier));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", APP),
            ("redirect_uri", REDIRECT),
            ("scope", "openid profile offline_access"),
            ("state", "state"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        query.extend(provider.map(|provider| ("identity_provider", provider)));
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let request = ClientRequest::get(&format!("{AUTHORIZATION}?{query}"));
        let mut to = self.ask(workload, "authorization", request).await.header("location")?;
        // A node that fails may send the browser in a circle.
        for _ in 0..STEPS {
            if to.starts_with(REDIRECT) {
                return answer_parameter(&to, "code");
            }
            let address = Url::parse(&workload.base).and_then(|base| base.join(&to)).ok()?;
            let Some(path) = workload.path_of(address.as_str()) else {
                to = workload.nodes().visit(address.as_str()).await?;
                continue;
            };
            let response = self.ask(workload, "page", ClientRequest::get(path)).await;
            if let Some(next) = response.header("location") {
                to = next;
                continue;
            }
            if address.path() != "/sign-in" || !response.is(200) {
                return None;
            }
            to = self.send_password(workload, response.body.as_str()?).await?;
        }
        None
    }

    /// Sends the form of the sign-in page. Returns the address to which the server redirects.
    async fn send_password(&mut self, workload: &Workload, page: &str) -> Option<String> {
        self.fields = hidden_fields(page);
        let (name, password) = &workload.user;
        let form = self.form("/sign-in", &[("username", name), ("password", password)]);
        self.ask(workload, "sign-in", form).await.header("location")
    }
}
