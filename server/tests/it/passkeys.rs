//! Tests of passkeys in a real browser with the virtual authenticator of WebDriver.

use std::time::Instant;

use crate::driver::{Driver, have_browser};
use crate::one_time_links;
use crate::support::{PATIENCE, Server};

impl Driver {
    /// Waits until the page has this heading.
    pub async fn wait_for(&self, heading: &str) {
        let start = Instant::now();
        loop {
            let text = self.run("return document.querySelector('h1')?.textContent ?? ''").await;
            if text == heading {
                return;
            }
            let page = self.run("return document.body?.innerText ?? ''").await;
            assert!(start.elapsed() < PATIENCE, "{heading}: the page is {page}");
            tokio::task::yield_now().await;
        }
    }

    /// Signs in with user name and password.
    pub async fn sign_in(&self, server: &Server) {
        let demo = server.demo_json();
        self.go(&format!("{}/sign-in", server.base())).await;
        self.fill("#username", demo["user"]["username"].as_str().unwrap()).await;
        self.fill("#password", demo["user"]["password"].as_str().unwrap()).await;
        self.press("form[action='/sign-in'] button").await;
    }

    /// Signs out on the account page.
    pub async fn sign_out(&self, server: &Server) {
        self.go(&format!("{}/account", server.base())).await;
        self.press("form[action='/sign-out'] button").await;
        self.wait_for("You are signed out").await;
    }

    /// Adds a passkey on the account page.
    pub async fn add_passkey(&self, name: &str) {
        self.wait_for("Your account").await;
        self.fill("#passkey-name", name).await;
        self.press("form[data-passkey=create] button").await;
        assert_eq!(self.text("p.done").await, "The passkey was added. You can sign in with it from now on.");
    }
}

#[tokio::test]
async fn a_passkey_is_added_used_and_removed() {
    if !have_browser() {
        return;
    }
    let server = Server::plain_demo();
    let driver = Driver::start().await;
    driver.refuse_suggestions().await;
    driver.add_authenticator().await;
    driver.sign_in(&server).await;
    driver.add_passkey("Garden phone").await;
    assert!(driver.text("main").await.contains("Garden phone"));
    driver.sign_out(&server).await;

    // Sign-in with the passkey button.
    driver.go(&format!("{}/sign-in", server.base())).await;
    driver.press("form[data-passkey=get] button").await;
    driver.wait_for("Your account").await;
    assert!(driver.text("main").await.contains("Willow Marsh"));

    // Sign-in with password and passkey, after the user has enabled this.
    driver.press("form[action='/account/passkeys/ask'] button").await;
    assert_eq!(driver.text("p.done").await, "Saved.");
    driver.sign_out(&server).await;
    driver.sign_in(&server).await;
    driver.wait_for("Use your passkey").await;
    driver.go(&format!("{}/account", server.base())).await;
    driver.wait_for("Sign in").await;
    driver.sign_in(&server).await;
    // The previous page has a button with the same selector, so the test waits for the new page.
    driver.wait_for("Use your passkey").await;
    driver.press("form[data-passkey=get] button").await;
    driver.wait_for("Your account").await;

    // A one-time link proves one factor: the passkey is still asked for.
    driver.sign_out(&server).await;
    let user = server.demo_json()["user"]["username"].as_str().unwrap().to_owned();
    driver.go(&one_time_links::link(&server, &user)).await;
    driver.fill("#new", "a walk in the garden").await;
    driver.press("form[action='/one-time-link'] button").await;
    driver.wait_for("Use your passkey").await;
    driver.press("form[data-passkey=get] button").await;
    driver.wait_for("Your account").await;

    // A removed passkey is rejected, even if the device still has it.
    driver.press("form[action='/account/passkeys/remove'] button").await;
    assert_eq!(driver.text("p.done").await, "The passkey was removed and no longer signs you in.");
    driver.sign_out(&server).await;
    driver.go(&format!("{}/sign-in", server.base())).await;
    driver.press("form[data-passkey=get] button").await;
    assert_eq!(driver.text("[role=alert]").await, "This passkey was not accepted.");
    driver.go(&format!("{}/account", server.base())).await;
    driver.wait_for("Sign in").await;
}

#[tokio::test]
async fn a_passkey_is_suggested_in_the_user_name_field() {
    if !have_browser() {
        return;
    }
    let server = Server::plain_demo();
    let driver = Driver::start().await;
    driver.add_authenticator().await;
    driver.sign_in(&server).await;
    driver.add_passkey("").await;
    assert!(driver.text("main").await.contains("Passkey 1"));
    driver.sign_out(&server).await;
    driver.go(&format!("{}/sign-in", server.base())).await;
    driver.wait_for("Your account").await;
}
