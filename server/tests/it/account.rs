//! Tests of the account page, and of the effects of its actions.

use serde_json::Value;
use test_parties::hidden_fields;

use crate::sign_in::{Browser, location, tokens, userinfo};
use crate::support::Server;

impl Browser<'_> {
    async fn account(&mut self, base: &str) -> String {
        self.get(&format!("{base}/account")).await.text().await.unwrap()
    }

    /// Submits a form of the account page.
    async fn form(&mut self, address: String, page: &str, fields: &[(&str, &str)]) -> reqwest::Response {
        let csrf = hidden_fields(page).into_iter().find(|(name, _)| name == "csrf").unwrap();
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let form: Vec<(String, String)> = fields.chain([csrf]).collect();
        self.send(self.client.post(address).form(&form)).await
    }

    async fn sign_in_here(&mut self, base: &str, username: &str, password: &str) -> u16 {
        let page = self.get(&format!("{base}/sign-in")).await.text().await.unwrap();
        let fields = [("continue", ""), ("username", username), ("password", password)];
        self.form(format!("{base}/sign-in"), &page, &fields).await.status().as_u16()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_and_ended_from_another_browser() {
    let server = Server::demo();
    let (base, demo) = (server.base(), server.demo_json());
    let (mut desk, mut phone) = (Browser::new(&server), Browser::new(&server));
    let at_desk = tokens(&server, &mut desk, &demo["user"]).await;
    let on_phone = tokens(&server, &mut phone, &demo["user"]).await;

    let page = desk.account(&base).await;
    assert_eq!(page.matches("class=\"tag\"").count(), 1, "one session is marked as this browser: {page}");
    let sid = page.split("name=\"sid\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(page.matches("name=\"sid\"").count(), 1, "the other session can be ended");
    let response = desk.form(format!("{base}/account/sessions/end"), &page, &[("sid", &sid)]).await;
    assert_eq!(
        (response.status().as_u16(), location(&response)),
        (303, format!("{base}/account?notice=ended"))
    );
    assert_eq!(userinfo(&server, &on_phone.access).await, 401);
    assert_eq!(userinfo(&server, &at_desk.access).await, 200);
    assert_eq!(phone.get(&format!("{base}/account")).await.status(), 303);
    assert!(!desk.account(&base).await.contains("name=\"sid\""));

    // A user cannot end the session of another user.
    let mut other = Browser::new(&server);
    tokens(&server, &mut other, &demo["users"][1]).await;
    let page = other.account(&base).await;
    assert!(!page.contains("name=\"sid\""));
    let sid = tokens(&server, &mut phone, &demo["user"]).await.sid;
    let refusal = other.form(format!("{base}/account/sessions/end"), &page, &[("sid", &sid)]).await;
    assert_eq!(refusal.status(), 404);
    assert_eq!(phone.get(&format!("{base}/account")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_other_sessions_are_ended_at_once() {
    let server = Server::demo();
    let (base, demo) = (server.base(), server.demo_json());
    let mut desk = Browser::new(&server);
    let at_desk = tokens(&server, &mut desk, &demo["user"]).await;
    let mut elsewhere = Vec::new();
    for _ in 0..3 {
        let mut browser = Browser::new(&server);
        elsewhere.push(tokens(&server, &mut browser, &demo["user"]).await);
    }
    let page = desk.account(&base).await;
    assert!(page.contains("3 sessions"), "sessions of one kind of browser are one group: {page}");
    let response = desk.form(format!("{base}/account/sessions/end-others"), &page, &[]).await;
    assert_eq!(
        (response.status().as_u16(), location(&response)),
        (303, format!("{base}/account?notice=others"))
    );
    assert_eq!(userinfo(&server, &at_desk.access).await, 200, "this session and its apps remain");
    for tokens in elsewhere {
        assert_eq!(userinfo(&server, &tokens.access).await, 401);
    }
    assert!(!desk.account(&base).await.contains("end-others"), "nothing is left to end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_ends_other_sessions_and_all_tokens() {
    let server = Server::demo();
    let (base, demo) = (server.base(), server.demo_json());
    let (name, old) =
        (demo["user"]["username"].as_str().unwrap(), demo["user"]["password"].as_str().unwrap());
    let new = "a long walk in the garden";
    let (mut desk, mut phone) = (Browser::new(&server), Browser::new(&server));
    let at_desk = tokens(&server, &mut desk, &demo["user"]).await;
    let on_phone = tokens(&server, &mut phone, &demo["user"]).await;

    let page = desk.account(&base).await;
    let response =
        desk.form(format!("{base}/account/password"), &page, &[("current", old), ("new", new)]).await;
    assert_eq!(
        (response.status().as_u16(), location(&response)),
        (303, format!("{base}/account?notice=password"))
    );
    assert_eq!(desk.get(&format!("{base}/account")).await.status(), 200, "this browser stays signed in");
    assert_eq!(phone.get(&format!("{base}/account")).await.status(), 303);
    for token in [at_desk.access, on_phone.access] {
        assert_eq!(userinfo(&server, &token).await, 401);
    }
    let mut fresh = Browser::new(&server);
    assert_eq!(fresh.sign_in_here(&base, name, old).await, 401);
    assert_eq!(fresh.sign_in_here(&base, name, new).await, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_browser_can_sign_in_while_others_are_locked() {
    let server = Server::demo();
    let (base, demo) = (server.base(), server.demo_json());
    let (name, password) =
        (demo["user"]["username"].as_str().unwrap(), demo["user"]["password"].as_str().unwrap());
    let mut browser_of_user = Browser::new(&server);
    assert_eq!(browser_of_user.sign_in_here(&base, name, password).await, 303);
    let mut stranger = Browser::new(&server);
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(stranger.sign_in_here(&base, name, "not the password").await);
    }
    assert!(answers.starts_with(&[401, 401, 401, 401, 401]) && answers.contains(&429), "{answers:?}");
    assert_eq!(browser_of_user.sign_in_here(&base, name, password).await, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_gets_tokens_that_end_with_the_session() {
    let server = Server::demo();
    let (base, demo) = (server.base(), server.demo_json());
    let mut browser = Browser::new(&server);
    tokens(&server, &mut browser, &demo["user"]).await;
    let client = demo["device"]["client_id"].as_str().unwrap();
    let post = async |path: &str, form: &[(&str, &str)]| {
        let response = server.client().post(format!("{base}{path}")).form(form).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (_, begun) =
        post("/oauth2/device_authorization", &[("client_id", client), ("scope", "openid profile")]).await;
    let page = browser.get(begun["verification_uri_complete"].as_str().unwrap()).await.text().await.unwrap();
    let fields = [("user_code", begun["user_code"].as_str().unwrap()), ("answer", "allow")];
    assert_eq!(browser.form(format!("{base}/device"), &page, &fields).await.status(), 200);
    let grant = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", client),
        ("device_code", begun["device_code"].as_str().unwrap()),
    ];
    let (status, answer) = post("/oauth2/token", &grant).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["refresh_token"], Value::Null, "offline_access was not requested");
    let token = answer["access_token"].as_str().unwrap();
    assert_eq!(userinfo(&server, token).await, 200);
    let page = browser.account(&base).await;
    browser.form(format!("{base}/sign-out"), &page, &[]).await;
    assert_eq!(userinfo(&server, token).await, 401);
}
