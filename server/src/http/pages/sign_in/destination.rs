//! The destination of the browser after a sign-in.

use identity::params::Params;
use maud::{Markup, html};

use crate::http::pages::resume;

/// The values that the forms of a sign-in pass on.
pub struct SignInDestination {
    /// The destination of the browser, see [`resume`].
    pub back: String,
    /// The external account that is linked after the sign-in.
    pub link: Option<String>,
}

impl SignInDestination {
    /// Reads the values from a query or form.
    pub fn read(form: &Params) -> Self {
        Self { back: resume::read_destination(form), link: form.get("link").map(str::to_owned) }
    }

    /// The hidden fields.
    pub fn fields(&self) -> Markup {
        html! {
            input type="hidden" name="continue" value=(self.back);
            @if let Some(link) = &self.link { input type="hidden" name="link" value=(link); }
        }
    }

    /// The path of a page with these values in its query.
    pub fn at(&self, path: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("continue", &self.back);
        if let Some(link) = &self.link {
            query.append_pair("link", link);
        }
        format!("{path}?{}", query.finish())
    }
}
