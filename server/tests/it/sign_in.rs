//! Tests of the sign-in, in which the test performs each step of a browser, and of the ways in which a
//! sign-in ends.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use test_parties::{BrowserCookies, answer_parameter, hidden_fields};

use crate::support::Server;

/// A minimal browser: cookies and forms, without rendering.
pub struct Browser<'a> {
    server: &'a Server,
    pub client: reqwest::Client,
    pub cookies: BrowserCookies,
}

impl<'a> Browser<'a> {
    pub fn new(server: &'a Server) -> Self {
        Self { server, client: server.client(), cookies: BrowserCookies::default() }
    }

    pub async fn send(&mut self, request: reqwest::RequestBuilder) -> reqwest::Response {
        let response = request.header("cookie", self.cookies.header()).send().await.unwrap();
        for set in response.headers().get_all("set-cookie") {
            let set = set.to_str().unwrap();
            let is_https = self.server.base().starts_with("https:");
            assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax"), "{set}");
            assert_eq!(set.contains("Secure"), is_https, "{set}");
            assert_eq!(set.starts_with("__Host-"), is_https, "{set}");
            self.cookies.keep(set);
        }
        response
    }

    pub async fn get(&mut self, address: &str) -> reqwest::Response {
        self.send(self.client.get(address)).await
    }

    /// Performs a sign-in from the authorization request to the redirect URL with the answer.
    pub async fn sign_in(&mut self, query: &str, username: &str, password: &str) -> String {
        let base = self.server.base();
        let mut to = self.get(&format!("{base}/oauth2/authorize?{query}")).await;
        if location(&to).contains("/sign-in?") {
            let page = self.get(&location(&to)).await.text().await.unwrap();
            let mut form = hidden_fields(&page);
            form.extend([
                ("username".to_owned(), username.to_owned()),
                ("password".to_owned(), password.to_owned()),
            ]);
            let response = self.send(self.client.post(format!("{base}/sign-in")).form(&form)).await;
            assert_eq!(response.status(), 303);
            to = self.get(&location(&response)).await;
        }
        assert_eq!(to.status(), 302);
        location(&to)
    }
}

pub fn location(response: &reqwest::Response) -> String {
    response.headers()["location"].to_str().unwrap().to_owned()
}

pub struct Tokens {
    pub access: String,
    pub sid: String,
    refresh: Option<String>,
    id: String,
}

pub async fn tokens(server: &Server, browser: &mut Browser<'_>, user: &Value) -> Tokens {
    let client = &server.demo_json()["confidential"];
    let (id, secret) = (client["client_id"].as_str().unwrap(), client["client_secret"].as_str().unwrap());
    let to = client["redirect_uris"][0].as_str().unwrap();
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("response_type", "code"),
            ("client_id", id),
            ("redirect_uri", to),
            ("scope", "openid profile"),
        ])
        .finish();
    let text = |name: &str| user[name].as_str().unwrap().to_owned();
    let response = browser.sign_in(&query, &text("username"), &text("password")).await;
    let code = answer_parameter(&response, "code").unwrap_or_else(|| panic!("no code in {response}"));
    let form = [("grant_type", "authorization_code"), ("code", &code), ("redirect_uri", to)];
    let request =
        server.client().post(format!("{}/oauth2/token", server.base())).basic_auth(id, Some(secret));
    let response: Value = request.form(&form).send().await.unwrap().json().await.unwrap();
    let claims =
        response["access_token"].as_str().and_then(|token| token.split('.').nth(1)).unwrap_or_default();
    let claims: Value =
        URL_SAFE_NO_PAD.decode(claims).ok().and_then(|c| serde_json::from_slice(&c).ok()).unwrap();
    Tokens {
        sid: claims["sid"].as_str().unwrap().to_owned(),
        access: response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned(),
        refresh: response["refresh_token"].as_str().map(str::to_owned),
        id: response["id_token"].as_str().unwrap().to_owned(),
    }
}

pub async fn userinfo(server: &Server, token: &str) -> u16 {
    let request = server.client().get(format!("{}/oauth2/userinfo", server.base())).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_or_an_operator_can_end_a_sign_in() {
    let server = Server::demo();
    let demo = server.demo_json();
    let user = &demo["user"];

    // The browser session serves a second request without another sign-in.
    let mut browser = Browser::new(&server);
    let first = tokens(&server, &mut browser, user).await;
    let second = tokens(&server, &mut browser, user).await;
    assert_eq!((userinfo(&server, &first.access).await, userinfo(&server, &second.access).await), (200, 200));

    // Refresh tokens are rotated. The second use of a spent token revokes its family.
    let client = &demo["confidential"];
    let refresh = async |token: &str| {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
        let request = server.client().post(format!("{}/oauth2/token", server.base())).form(&form);
        let request =
            request.basic_auth(client["client_id"].as_str().unwrap(), client["client_secret"].as_str());
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let spent = second.refresh.unwrap();
    let (status, renewed) = refresh(&spent).await;
    assert_eq!(status, 200, "{renewed}");
    assert_eq!(userinfo(&server, renewed["access_token"].as_str().unwrap()).await, 200);
    assert_eq!(refresh(&spent).await.0, 400);
    assert_eq!(userinfo(&server, renewed["access_token"].as_str().unwrap()).await, 401);
    assert_eq!(userinfo(&server, &second.access).await, 401);
    assert_eq!(userinfo(&server, &first.access).await, 200, "the other token family is still valid");

    // Sign-out by the client ends the session and all tokens issued from it.
    let logout = format!("{}/logout?id_token_hint={}", server.base(), first.id);
    assert_eq!(browser.get(&logout).await.status(), 200);
    assert_eq!(userinfo(&server, &first.access).await, 401);
    assert!(browser.cookies.names().all(|name| name != "__Host-trefoil"));

    // The operator of the running server signs a user out globally and disables a user.
    let third = tokens(&server, &mut browser, user).await;
    let name = user["username"].as_str().unwrap();
    assert!(server.trefoil(&["user", "sign-out", name]).status.success());
    assert_eq!(userinfo(&server, &third.access).await, 401);
    let fourth = tokens(&server, &mut browser, user).await;
    assert_eq!(userinfo(&server, &fourth.access).await, 200);
    assert!(server.trefoil(&["user", "disable", name]).status.success());
    assert_eq!(userinfo(&server, &fourth.access).await, 401);
    assert!(server.trefoil(&["user", "enable", name]).status.success());
    assert_eq!(
        userinfo(&server, &fourth.access).await,
        401,
        "tokens stay revoked after the user is enabled again"
    );
    let fifth = tokens(&server, &mut browser, user).await;
    assert_eq!(userinfo(&server, &fifth.access).await, 200);
    assert!(server.trefoil(&["user", "delete", name]).status.success());
    assert_eq!(userinfo(&server, &fifth.access).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_keys_still_verify_their_tokens() {
    let server = Server::demo();
    let demo = server.demo_json();
    let mut browser = Browser::new(&server);
    let before = tokens(&server, &mut browser, &demo["user"]).await;
    assert!(server.trefoil(&["keys", "rotate", "--now"]).status.success());
    let after = tokens(&server, &mut browser, &demo["user"]).await;
    assert_eq!((userinfo(&server, &before.access).await, userinfo(&server, &after.access).await), (200, 200));
    let keys = String::from_utf8(server.trefoil(&["keys", "list"]).stdout).unwrap();
    let active = keys.lines().find(|line| line.contains("access-token  ES256  active")).unwrap();
    let kid = active.split(' ').next().unwrap();
    assert!(server.trefoil(&["keys", "revoke", kid]).status.success());
    assert_eq!(userinfo(&server, &after.access).await, 401, "the token was signed by the revoked key");
    assert_eq!(userinfo(&server, &before.access).await, 200, "the token was signed by the previous key");
}
