//! Tests of the console: who may use it, and the commands that its forms run.

use serde_json::Value;
use test_parties::hidden_fields;

use crate::sign_in::{Browser, location, tokens};
use crate::support::Server;

/// A browser in which an administrator has signed in, and the name of the user.
async fn administrator(server: &Server) -> (Browser<'_>, String) {
    let user = server.demo_json()["user"].clone();
    let name = user["username"].as_str().unwrap().to_owned();
    assert!(server.trefoil(&["user", "change", &name, "--administrator"]).status.success());
    let mut browser = Browser::new(server);
    tokens(server, &mut browser, &user).await;
    (browser, name)
}

/// Sends the form of an action. Returns the status and the page.
async fn act(browser: &mut Browser<'_>, base: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let page = browser.get(&format!("{base}/console")).await.text().await.unwrap();
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let form: Vec<_> = fields.iter().copied().chain([("csrf", csrf.as_str())]).collect();
    let response = browser.send(browser.client.post(format!("{base}/console")).form(&form)).await;
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_manages_users_clients_and_keys() {
    let server = Server::demo();
    let base = server.base();
    let (mut browser, admin) = administrator(&server).await;
    let page = browser.get(&format!("{base}/console")).await;
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    for part in [
        "Server",
        "Refused requests",
        "Users",
        "Clients",
        "Exports",
        "Releases of code systems",
        "Signing keys",
    ] {
        assert!(page.contains(&format!("<h2>{part}</h2>")), "{part}");
    }
    assert!(page.contains(&format!("/console/user?name={admin}")), "{page}");

    let add = [
        ("action", "user-add"),
        ("username", "fern"),
        ("name", "Fern Wood"),
        ("password", "a walk in the garden"),
    ];
    let (status, page) = act(&mut browser, &base, &add).await;
    assert!(status == 200 && page.contains("added user fern"), "{page}");
    assert!(
        page.contains("trefoil user add &#39;--name=Fern Wood&#39; fern")
            || page.contains("trefoil user add '--name=Fern Wood' fern"),
        "{page}"
    );
    let (status, page) = act(&mut browser, &base, &add).await;
    assert!(status == 422 && page.contains("Not done"), "{page}");
    let mut fern = Browser::new(&server);
    let user = serde_json::json!({ "username": "fern", "password": "a walk in the garden" });
    tokens(&server, &mut fern, &user).await;
    assert_eq!(fern.get(&format!("{base}/account")).await.status(), 200);
    let user_page = browser.get(&format!("{base}/console/user?name=fern")).await.text().await.unwrap();
    assert!(user_page.contains("Fern Wood") && user_page.contains("last seen"), "{user_page}");
    let (_, page) = act(&mut browser, &base, &[("action", "user-disable"), ("user", "fern")]).await;
    assert!(page.contains("disabled fern"), "{page}");
    assert_eq!(fern.get(&format!("{base}/account")).await.status(), 303, "the session has ended");

    // A deletion is asked about first.
    let delete = [("action", "user-delete"), ("user", "fern")];
    let (_, question) = act(&mut browser, &base, &delete).await;
    assert!(question.contains("Delete the user fern?"), "{question}");
    assert!(String::from_utf8(server.trefoil(&["user", "list"]).stdout).unwrap().contains("fern"));
    let form = hidden_fields(&question);
    let response = browser.send(browser.client.post(format!("{base}/console")).form(&form)).await;
    assert!(response.text().await.unwrap().contains("deleted fern"));
    assert!(!String::from_utf8(server.trefoil(&["user", "list"]).stdout).unwrap().contains("fern"));

    let add = [
        ("action", "client-add"),
        ("client_id", "shop"),
        ("redirect_uris", "https://shop.example/"),
        ("scope", "openid"),
        ("token_endpoint_auth_methods", "client_secret_basic"),
    ];
    let (_, page) = act(&mut browser, &base, &add).await;
    assert!(page.contains("added client shop") && page.contains("secret"), "{page}");
    let client_page = browser.get(&format!("{base}/console/client?id=shop")).await.text().await.unwrap();
    assert!(
        client_page.contains("https://shop.example/") && client_page.contains("Replace the secret"),
        "{client_page}"
    );
    let (status, page) = act(&mut browser, &base, &[("action", "keys-rotate")]).await;
    assert!(status == 422 && page.contains("--now"), "the next keys are too new: {page}");
    assert_eq!(act(&mut browser, &base, &[("action", "purge"), ("id", "Patient/p1")]).await.0, 400);

    // The audit log names the administrator.
    let audit: String = std::fs::read_dir(server.data().join("audit"))
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let user: Value =
        serde_json::from_slice(&server.trefoil(&["user", "show", &admin, "--json"]).stdout).unwrap();
    let sub = user["sub"].as_str().unwrap();
    let entries: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let deleted = entries.iter().find(|entry| entry["action"] == "D").expect("the deletion is recorded");
    assert!(deleted["agent"].to_string().contains(sub), "{deleted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_administrator_with_a_recent_sign_in_may_use_the_console() {
    let mut server = Server::demo();
    let base = server.base();
    let mut stranger = Browser::new(&server);
    let response = stranger.get(&format!("{base}/console")).await;
    assert_eq!(response.status(), 303);
    let sign_in = location(&response);
    assert!(sign_in.contains("/sign-in?continue=console"), "{sign_in}");

    // After the sign-in, the browser is at the console.
    let user = server.demo_json()["user"].clone();
    let page = stranger.get(&sign_in).await.text().await.unwrap();
    let mut form = hidden_fields(&page);
    for field in ["username", "password"] {
        form.push((field.to_owned(), user[field].as_str().unwrap().to_owned()));
    }
    let response = stranger.send(stranger.client.post(format!("{base}/sign-in")).form(&form)).await;
    assert_eq!(location(&response), format!("{base}/console"));
    let refusal = stranger.get(&format!("{base}/console")).await;
    assert_eq!(refusal.status(), 403, "no administrator");
    assert!(refusal.text().await.unwrap().contains("Only administrators"));
    for page in ["user?name=willow", "client?id=demo-device"] {
        assert_eq!(stranger.get(&format!("{base}/console/{page}")).await.status(), 403);
    }

    let (mut browser, _) = administrator(&server).await;
    // A form of another site has no token of this browser.
    let forged = [("action", "reload"), ("csrf", "x")];
    let response = browser.send(browser.client.post(format!("{base}/console")).form(&forged)).await;
    assert_eq!(response.status(), 403);
    assert_eq!(browser.get(&format!("{base}/console")).await.status(), 200);
    let cookies = browser.cookies.clone();
    server.kill();
    server = server.with_variables(&[("TREFOIL_DEMO_AHEAD_S", "1000")]);
    server.start();
    let mut later = Browser::new(&server);
    later.cookies = cookies;
    let response = later.get(&format!("{base}/console")).await;
    assert_eq!(response.status(), 403);
    assert!(response.text().await.unwrap().contains("more than 15 minutes old"));
}
