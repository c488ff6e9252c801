//! POST {base}/oauth2/device_authorization (RFC 8628 3.1, 3.2).

use http::StatusCode;
use identity::authorize::device::POLLING_INTERVAL;
use identity::lifetimes;
use identity::model::client::GrantType;
use identity::sign_in::pending_quota::PendingKind;
use serde_json::json;

use super::read_client_form;
use crate::http::extract::RequestContext;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Begins a device authorization.
pub async fn authorize_device(mut context: RequestContext) -> Response {
    let (form, client) = match read_client_form(&mut context).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let identity = &context.app.identity;
    if !client.grant_types.contains(&GrantType::DeviceCode) {
        let text = "the client is not registered for the device authorization grant";
        return problem::oauth_error(StatusCode::BAD_REQUEST, "unauthorized_client", Some(text));
    }
    if let Err(error) = context.add_pending(PendingKind::DeviceAuthorization, Some(&client)) {
        return problem::pending_error(Dialect::OAuth, error);
    }
    match identity.devices.begin_device_authorization(&client, form.get("scope"), context.now).await {
        Ok(Ok(begun)) => {
            let page = format!("{}/device", context.app.base_url);
            reply::no_store(reply::json(
                StatusCode::OK,
                &json!({
                    "device_code": begun.device_code,
                    "user_code": begun.user_code,
                    "verification_uri": page,
                    "verification_uri_complete": format!("{page}?user_code={}", begun.user_code),
                    "expires_in": lifetimes::DEVICE_CODE.as_secs(),
                    "interval": POLLING_INTERVAL.as_secs(),
                }),
            ))
        }
        Ok(Err(error)) => {
            let text = "scope contains a scope that is not registered for the client";
            problem::oauth_error(StatusCode::BAD_REQUEST, error.as_str(), Some(text))
        }
        Err(error) => problem::store_error(Dialect::OAuth, &error),
    }
}
