//! The tutorials, each as one session with the outputs that the page shows.

use std::time::Duration;

use crate::driver::{Driver, have_browser};
use crate::page_session::{Page, PageSession};
use crate::support::{have, installed, python_packages};

fn follow(path: &'static str) {
    let output = PageSession::begin(&Page { path, ..Page::default() }).end();
    assert!(output > 0, "{path} shows no output");
}

#[test]
fn an_own_app() {
    if have("bash", "tutorials") && have("curl", "tutorials") {
        follow("server/docs/first-app.md");
    }
}

#[test]
fn the_first_export_and_its_second_day() {
    if have("bash", "tutorials") && installed("duckdb-cli", &python_packages().join("duckdb_cli")) {
        follow("server/docs/first-export.md");
    }
}

#[test]
fn an_own_terminology() {
    if have("bash", "tutorials") && have("curl", "tutorials") {
        follow("server/docs/first-terminology.md");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_a_hospital() {
    if !have("bash", "tutorials") || !have_browser() {
        return;
    }
    let page = Page { path: "server/docs/first-provider.md", uses_browser: true, ..Page::default() };
    let session = PageSession::begin(&page);
    let driver = Driver::start().await;
    while !session.is_at_browser() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let account = format!("https://localhost:{}/account", session.ports[0].1);
    driver.go(&account).await;
    driver.illustrate("first-provider-sign-in").await;
    driver.press("a[href^='/sign-in/with/Hospital']").await;
    driver.fill("#username", "ada").await;
    driver.fill("#password", "a walk in the garden").await;
    driver.press("button").await;
    driver.illustrate("first-provider-consent").await;
    driver.press("button[value=allow]").await;
    // Between the two servers the browser shows an empty page for a moment.
    driver.find("form[action*='/account/']").await;
    let page = driver.text("body").await;
    assert!(page.contains("Ada Example"), "{page}");
    session.continue_after_browser();
    assert!(session.end() > 0);
}
