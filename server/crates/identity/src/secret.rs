//! The server's own secret: one random key for each store, from which the marks on values that leave the
//! server and come back (forms, device cookies, refresh successors) are derived.

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, Store, StoreError};
use subtle::ConstantTimeEq;

use crate::seal::{OpenError, Seal};
use crate::{Identity, Random};

const KEY: &str = "secret/server";

#[derive(Serialize, Deserialize)]
struct Record {
    secret: String,
}

/// The key of all marks.
pub(crate) struct Secret(hmac::Key);

impl Secret {
    /// Reads the secret, and makes it where there is none yet. Of two nodes that make it at once one wins,
    /// and both use that one's.
    pub(crate) async fn open(
        store: &Store,
        seal: &Seal,
        random: &dyn Random,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        loop {
            if let Some(stored) = seal.get::<Record>(store, KEY, now).await? {
                return Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, stored.value.secret.as_bytes())));
            }
            let record = Record { secret: random.secret() };
            match store.write(vec![seal.put(KEY, &record, Expect::Absent)], now).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Identity {
    /// The mark of a text for one purpose: HMAC-SHA256 in base64url. A mark for one purpose is worth nothing
    /// for another.
    pub fn mark(&self, purpose: &str, text: &str) -> String {
        let mut context = hmac::Context::with_key(&self.secret.0);
        context.update(purpose.as_bytes());
        // No purpose holds a zero byte, so that no two pairs read the same.
        context.update(&[0]);
        context.update(text.as_bytes());
        URL_SAFE_NO_PAD.encode(context.sign())
    }

    /// Is this the mark of the text for the purpose? Compared in constant time.
    pub fn is_marked(&self, purpose: &str, text: &str, mark: &str) -> bool {
        self.mark(purpose, text).as_bytes().ct_eq(mark.as_bytes()).into()
    }
}
