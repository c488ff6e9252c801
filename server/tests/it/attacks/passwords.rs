//! Password guesses that many addresses send at the same time.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use test_parties::hidden_fields;

use super::{report, size};
use crate::sign_in::{Browser, tokens};
use crate::support::Server;

/// Number of failures that one user name may have at all addresses before it is locked: the default of the
/// throttle.
const FREE_FAILURES: usize = 25;

/// Returns a client that connects from this address, and the fields of its sign-in page.
async fn shown_sign_in(server: &Server, from: [u8; 4]) -> (Browser<'_>, Vec<(String, String)>) {
    let mut browser = Browser::new(server);
    browser.client = server.client_from(from);
    let page = browser.get(&format!("{}/sign-in", server.base())).await;
    assert_eq!(page.status(), 200);
    let form = hidden_fields(&page.text().await.unwrap());
    (browser, form)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_attempts_get_no_more_guesses_than_consecutive_ones() {
    let server = Server::demo();
    let user = server.demo_json()["users"][0].clone();
    let name = user["username"].as_str().unwrap();
    let mut browser_of_user = Browser::new(&server);
    tokens(&server, &mut browser_of_user, &user).await;

    let mut guesses = Vec::new();
    for n in 0..size(60, 200) {
        let from = [127, 0, 6, u8::try_from(1 + n).unwrap()];
        let (browser, mut form) = shown_sign_in(&server, from).await;
        form.extend([
            ("username".to_owned(), name.to_owned()),
            ("password".to_owned(), format!("guess {n}")),
        ]);
        guesses.push((browser, form));
    }
    let address = format!("{}/sign-in", server.base());
    let answers: Vec<u16> = guesses
        .iter_mut()
        .map(async |(browser, form)| {
            let request = browser.client.post(&address).form(&form);
            browser.send(request).await.status().as_u16()
        })
        .collect::<FuturesUnordered<_>>()
        .collect()
        .await;
    let count = |status: u16| answers.iter().filter(|response| **response == status).count();
    let (evaluated, locked) = (count(401), count(429));
    report("passwords", format!("{evaluated} of {} guesses were evaluated, {locked} locked", answers.len()));
    assert!((1..=FREE_FAILURES).contains(&evaluated), "{answers:?}");
    assert_eq!(evaluated + locked + count(503), answers.len(), "{answers:?}");

    // The user can still sign in from a browser that was used before.
    browser_of_user.cookies.retain(|name| name.contains("device"));
    tokens(&server, &mut browser_of_user, &user).await;
}
