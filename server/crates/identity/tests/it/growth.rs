//! Law: the ledger has a bound. It contains what is still valid, however many people have signed in before;
//! once everything has expired, nothing but users, clients and keys is left.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::future::join_all;
use store::{Ledger as _, Store};
use test_database::TestDatabase;
use trefoil_identity::lifetimes;
use trefoil_identity::model::redirect_uri::RegisteredRedirectUri;
use trefoil_identity::sign_in::session::{SessionOrigin, SignInProof};
use trefoil_identity::tokens::grant::CodeExchange;

use crate::support::{CALLBACK, Setup, at};

const DAY_S: i64 = 24 * 3600;
/// Number of days: more than the longest lifetime of a refresh token, twice.
const DAYS: i64 = 80;
/// Number of sign-ins in a day; the variable makes it larger for figures.
const SIGN_INS: usize = 4;
const VARIABLE: &str = "TREFOIL_GROWTH_SIGN_INS";

/// A person signs in, and the app redeems the code and refreshes its token twice.
async fn sign_in(setup: &Setup, number: usize, second: i64) {
    let place = SessionOrigin { address: "192.0.2.1".to_owned(), agent: "a browser".to_owned() };
    let proof = SignInProof::password();
    let sessions = &setup.identity.sessions;
    let cookie = sessions.begin_session(&setup.user, &proof, place, None, at(second)).await.unwrap();
    let (session, _) = sessions.active_session(&cookie, at(second)).await.unwrap().unwrap();
    let mut grant = setup.grant("openid offline_access");
    (grant.granted, grant.auth_time) = (at(second), Some(at(second)));
    grant.session_ends = at(second + 12 * 3600);
    (grant.sid, grant.family) = (session.sid, format!("family-{second}-{number}"));
    let to = RegisteredRedirectUri::parse(CALLBACK, false).unwrap();
    let (grants, life) = (&setup.identity.grants, lifetimes::AUTHORIZATION_CODE);
    let code =
        grants.issue_authorization_code(grant.clone(), to, None, None, life, at(second)).await.unwrap();
    let exchange =
        CodeExchange { code: &code, redirect_uri: CALLBACK, verifier: None, jkt: None, resource: None };
    grants.redeem_authorization_code(&exchange, &setup.client, at(second + 1)).await.unwrap();
    let mut refresh = grants.issue_refresh_token(&grant, &setup.client, at(second + 1)).await.unwrap();
    for later in [600, 1_200] {
        let now = at(second + later);
        let redeemed = grants.redeem_refresh_token(&refresh, &setup.client, None, None, None, now).await;
        refresh = redeemed.unwrap().1;
    }
}

/// The keys of all records, also of those that have expired.
async fn keys(store: &Store) -> BTreeSet<String> {
    let (mut moment, mut keys) = (store.moment().await.unwrap(), BTreeSet::new());
    loop {
        let page = moment.next_page().await.unwrap();
        if page.is_empty() {
            return keys;
        }
        keys.extend(page.into_iter().map(|entry| entry.key));
    }
}

async fn sweep(store: &Store, second: i64) {
    while store.sweep(at(second), 1_000).await.unwrap() > 0 {}
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata().unwrap() {
            meta if meta.is_dir() => folder_bytes(&entry.path()),
            meta => meta.len(),
        })
        .sum()
}

async fn check(name: &str, store: Store, folder: Option<&Path>) {
    let count = std::env::var(VARIABLE).map_or(SIGN_INS, |count| count.parse().unwrap());
    let setup = Setup::on(store.clone()).await;
    let before = keys(&store).await;
    let (mut most, mut sizes) = ([0, 0], Vec::new());
    for day in 0..DAYS {
        join_all((0..count).map(|number| sign_in(&setup, number, day * DAY_S))).await;
        sweep(&store, (day + 1) * DAY_S).await;
        let half = usize::from(day >= DAYS / 2);
        most[half] = most[half].max(keys(&store).await.len());
        sizes.extend(folder.map(folder_bytes));
    }
    assert!(most[1] <= most[0], "{name}: {} records after {}", most[1], most[0]);
    let size = |at: usize| sizes.get(at).copied().unwrap_or_default() / 1024;
    println!(
        "{name}: {} sign-ins; at most {} records; {} KiB after half, {} KiB at the end",
        count * DAYS as usize,
        most[0],
        size(sizes.len() / 2),
        size(sizes.len().saturating_sub(1))
    );
    sweep(&store, 10 * 365 * DAY_S).await;
    assert_eq!(keys(&store).await, before, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_does_not_grow_with_past_sign_ins() {
    let folder = tempfile::tempdir().unwrap();
    check("folder", Store::open(folder.path()).unwrap(), Some(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_does_not_grow_with_past_sign_ins() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = store::DatabaseUrl::new(database.create().unwrap(), None);
    let store = Store::postgres(&url, store::DatabaseLimits::default()).await.unwrap();
    check("database", store, None).await;
}
