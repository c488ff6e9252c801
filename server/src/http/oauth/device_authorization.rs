//! POST {base}/oauth2/device_authorization (RFC 8628 3.1, 3.2).

use http::StatusCode;
use identity::client::GrantType;
use identity::device::{INTERVAL, LIFE};
use identity::pending::PendingKind;
use serde_json::json;

use super::form_of_client;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Begins a device authorization.
pub async fn post(mut call: Call) -> Response {
    let (form, client) = match form_of_client(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let identity = &call.app.identity;
    if !client.grant_types.contains(&GrantType::DeviceCode) {
        let text = "the client is not registered for the device authorization grant";
        return problem::oauth(StatusCode::BAD_REQUEST, "unauthorized_client", Some(text));
    }
    if let Err(error) = call.add_pending(PendingKind::DeviceAuthorization, Some(&client)) {
        return problem::pending(Dialect::OAuth, error);
    }
    match identity.begin_device(&client, form.get("scope"), call.now).await {
        Ok(Ok(begun)) => {
            let page = format!("{}/device", call.app.base_url);
            reply::no_store(reply::json(
                StatusCode::OK,
                &json!({
                    "device_code": begun.device_code,
                    "user_code": begun.user_code,
                    "verification_uri": page,
                    "verification_uri_complete": format!("{page}?user_code={}", begun.user_code),
                    "expires_in": LIFE.as_secs(),
                    "interval": INTERVAL.as_secs(),
                }),
            ))
        }
        Ok(Err(error)) => {
            let text = "scope asks for something that the client does not have";
            problem::oauth(StatusCode::BAD_REQUEST, error.as_str(), Some(text))
        }
        Err(error) => problem::store(Dialect::OAuth, &error),
    }
}
