//! POST {base}/oauth2/device_authorization (RFC 8628 3.1, 3.2).

use http::StatusCode;
use identity::authorize::device::POLLING_INTERVAL;
use identity::lifetimes;
use identity::model::client::GrantType;
use identity::sign_in::pending_quota::PendingKind;
use serde_json::json;

use super::read_client_form;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Begins a device authorization.
pub async fn authorize_device(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (form, client) = read_client_form(context, body).await?;
    let identity = &context.app.identity;
    if !client.grant_types.contains(&GrantType::DeviceCode) {
        let text = "the client is not registered for the device authorization grant";
        return Err(Problem::oauth(StatusCode::BAD_REQUEST, "unauthorized_client", text));
    }
    context.add_pending(PendingKind::DeviceAuthorization, Some(&client))?;
    match identity.devices.begin_device_authorization(&client, form.get("scope"), context.now).await? {
        Ok(start) => {
            let page = format!("{}/device", context.app.address.base_url);
            Ok(reply::no_store(reply::json(
                StatusCode::OK,
                &json!({
                    "device_code": start.device_code,
                    "user_code": start.user_code,
                    "verification_uri": page,
                    "verification_uri_complete": format!("{page}?user_code={}", start.user_code),
                    "expires_in": lifetimes::DEVICE_CODE.as_secs(),
                    "interval": POLLING_INTERVAL.as_secs(),
                }),
            )))
        }
        Err(refusal) => {
            Err(Problem::oauth(StatusCode::BAD_REQUEST, refusal.error.as_str(), &refusal.description()))
        }
    }
}
