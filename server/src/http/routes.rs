//! All routes of the server, one line each: method, path, flags, and the handler with its parameters.
//!
//! A handler gets the [`RequestContext`] and the parameters that its line names: `body` is the body of the
//! request, and any other name is the placeholder in the path. It returns a response or a [`Problem`]. The
//! routes of the terminology operations follow from the rows of [`TerminologyOperation`], and those of the
//! administration from the [`COMMANDS`].

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::terminology::{OperationMethods, TerminologyOperation};
use http::Method;

use super::extract::{RequestBody, RequestContext};
use super::path_parameters::{FromPath, PathParameters};
use super::problem::Problem;
use super::reply::Response;
use super::{admin, fhir, metrics, oauth, pages, well_known};
use crate::administration::all_commands::{COMMANDS, CommandRow};
use crate::administration::command::AdminRoute;

/// A request with the parameters of its route.
pub struct RoutedRequest {
    /// The request without its body.
    pub context: Arc<RequestContext>,
    /// The body, not read.
    pub body: RequestBody,
    /// The values of the placeholders.
    pub path: PathParameters,
}

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// A property of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteFlag {
    /// Scripts on every origin may read the response, which is public.
    AnyOrigin,
    /// Scripts on the origins of the clients' redirect URIs may read the response.
    Cors,
    /// The page is not part of an authorization, which may run in a popup: it is isolated from windows of
    /// other origins.
    Isolated,
    /// HEAD is not supported, because GET creates something (RFC 9110 section 9.2.1).
    NoHead,
    /// Problems of the handler are pages, whatever the dialect of the table is.
    Page,
    /// The handler changes nothing that a cancelled request could leave incomplete, although its method or
    /// table suggests it (see [`Route::only_reads`]).
    Reads,
}

/// The kind of work that the requests of a route do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteWork {
    /// Reads and searches of resources.
    Read,
    /// Writes of resources, with the searches of conditional requests, and Bundles.
    Write,
    /// An operation on code systems, which counts its own steps (see [`terminology::Budget`]).
    Terminology,
    /// The start and the files of an export. The export itself is a job.
    Export,
    /// Work that the limits of parameters and forms bound. A password is hashed on threads of its own.
    Fixed,
}

impl RouteWork {
    /// CPU time after which a request examines no further resources. `None` if other limits bound its work.
    pub fn cpu_limit(self) -> Option<Duration> {
        match self {
            Self::Read => Some(Duration::from_millis(900)),
            Self::Write => Some(Duration::from_secs(5)),
            Self::Terminology | Self::Export | Self::Fixed => None,
        }
    }
}

/// The handler of a route.
#[derive(Clone, Copy)]
pub enum Handler {
    /// A function of a table.
    Function(fn(RoutedRequest) -> HandlerFuture),
    /// The handler of all terminology operations.
    Operation(TerminologyOperation),
    /// The handler of all commands of an administrator.
    Command(&'static CommandRow, &'static AdminRoute),
}

impl Handler {
    /// Calls the handler.
    pub fn call(self, request: RoutedRequest) -> HandlerFuture {
        match self {
            Self::Function(function) => function(request),
            Self::Operation(operation) => Box::pin(async move {
                let RoutedRequest { context, mut body, mut path } = request;
                let id = FromPath::from_path(&mut path, "id")?;
                fhir::operation::answer_operation(&context, operation, id, &mut body).await
            }),
            Self::Command(row, route) => Box::pin(async move {
                let RoutedRequest { context, mut body, path } = request;
                admin::run_command(&context, row, route, path, &mut body).await
            }),
        }
    }
}

/// A row of a table of routes.
pub struct Route {
    /// The method of HTTP.
    pub method: Method,
    /// The path; `{name}` is a placeholder for one segment.
    pub path: Cow<'static, str>,
    flags: &'static [RouteFlag],
    /// Names of the parameters of the handler.
    #[cfg(test)]
    pub parameters: &'static [&'static str],
    /// The handler.
    pub handler: Handler,
}

impl Route {
    /// Returns whether the route has a property.
    pub fn has(&self, flag: RouteFlag) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns whether HEAD is answered.
    pub fn allows_head(&self) -> bool {
        self.method == Method::GET && !self.has(RouteFlag::NoHead)
    }

    /// The kind of work that a request does, which determines its CPU time.
    pub fn work(&self) -> RouteWork {
        let is_export = self.path.contains("$export") || self.path.contains("/bulk/");
        match self.handler {
            Handler::Operation(_) => RouteWork::Terminology,
            _ if self.path.ends_with("/$closure") => RouteWork::Terminology,
            _ if is_export => RouteWork::Export,
            _ if !self.path.starts_with("fhir/") => RouteWork::Fixed,
            _ if self.only_reads() => RouteWork::Read,
            _ => RouteWork::Write,
        }
    }

    /// Returns whether a request may be cancelled at any time. GET of the pages and of OAuth may write, for
    /// example a session.
    pub fn only_reads(&self) -> bool {
        let is_api = ["fhir/", "admin/"].iter().any(|prefix| self.path.starts_with(prefix));
        self.has(RouteFlag::Reads) || is_api && self.allows_head()
    }
}

macro_rules! routes {
    ($($method:ident $path:literal $($flag:ident)* => $($handler:ident)::+ ($($parameter:ident),*);)*) => {
        &[$(Route {
            method: Method::$method,
            path: Cow::Borrowed($path),
            flags: &[$(RouteFlag::$flag),*],
            #[cfg(test)]
            parameters: &[$(stringify!($parameter)),*],
            handler: Handler::Function(|request| Box::pin(async move {
                #[allow(unused_mut)]
                let RoutedRequest { context, mut body, mut path } = request;
                let _ = (&mut body, &mut path);
                $($handler)::+(&context, $(routes!(@value $parameter body path)),*).await
            })),
        },)*]
    };
    (@value body $body:ident $path:ident) => { &mut $body };
    (@value $name:ident $body:ident $path:ident) => { FromPath::from_path(&mut $path, stringify!($name))? };
}

static OAUTH: &[Route] = routes! {
    GET    "oauth2/authorize" NoHead Page => oauth::authorize::authorize();
    GET    "oauth2/resume" Page => oauth::authorize::resume_request();
    POST   "oauth2/par" Cors => oauth::par::push_request(body);
    POST   "oauth2/token" Cors => oauth::token::issue_tokens(body);
    GET    "oauth2/userinfo" Cors Reads => oauth::userinfo::user_info();
    POST   "oauth2/userinfo" Cors Reads => oauth::userinfo::user_info();
    GET    "oauth2/userInfo" Cors Reads => oauth::userinfo::user_info();
    POST   "oauth2/userInfo" Cors Reads => oauth::userinfo::user_info();
    POST   "oauth2/introspect" Cors Reads => oauth::introspect::introspect_token(body);
    POST   "oauth2/launch" Cors => oauth::launch::create_launch(body);
    POST   "oauth2/revoke" Cors => oauth::revoke::revoke_token(body);
    POST   "oauth2/device_authorization" Cors => oauth::device_authorization::authorize_device(body);
    GET    "oauth2/idpresponse/{provider}" Page => oauth::federation::provider_callback(provider);
};

static WELL_KNOWN: &[Route] = routes! {
    GET    ".well-known/openid-configuration" AnyOrigin Reads => oauth::discovery::openid_configuration();
    GET    ".well-known/oauth-authorization-server" AnyOrigin Reads => oauth::discovery::openid_configuration();
    GET    ".well-known/jwks.json" AnyOrigin Reads => oauth::discovery::key_set();
    GET    ".well-known/change-password" Page => well_known::change_password();
    GET    ".well-known/security.txt" Page Reads => well_known::security_contact();
    GET    ".well-known/oauth-protected-resource/fhir/R4" AnyOrigin Reads => oauth::discovery::protected_resource();
};

static PAGES: &[Route] = routes! {
    GET    "" Isolated => pages::home::show_home();
    GET    "sign-in" => pages::sign_in::form::show_form();
    POST   "sign-in" => pages::sign_in::form::submit_form(body);
    GET    "sign-in/with/{provider}" => oauth::federation::start_sign_in(provider);
    GET    "consent" => pages::consent::show_question();
    POST   "consent" => pages::consent::submit_answer(body);
    GET    "patient" => pages::patient::show_patients();
    POST   "patient" => pages::patient::submit_choice(body);
    GET    "sign-out" => pages::sign_out::sign_out();
    POST   "sign-out" => pages::sign_out::submit_form(body);
    GET    "logout" => pages::sign_out::sign_out();
    POST   "logout" => pages::sign_out::submit_form(body);
    POST   "passkey" => pages::passkey::complete_sign_in(body);
    POST   "passkey/options" => pages::passkey::begin_sign_in(body);
    GET    "recovery" => pages::recovery::show_form();
    POST   "recovery" => pages::recovery::submit_form(body);
    GET    "one-time-link" => pages::one_time_link::show_form();
    POST   "one-time-link" => pages::one_time_link::submit_form(body);
    GET    "device" => pages::device::show_form();
    POST   "device" => pages::device::submit_form(body);
    GET    "account" Isolated => pages::account::show_account();
    POST   "account" Isolated => pages::account::sessions::sign_out_everywhere(body);
    POST   "account/sessions/end" Isolated => pages::account::sessions::end_session(body);
    POST   "account/sessions/end-others" Isolated => pages::account::sessions::end_other_sessions(body);
    POST   "account/passkeys" Isolated => pages::account::passkeys::add_passkey(body);
    POST   "account/passkeys/options" Isolated => pages::account::passkeys::begin_registration(body);
    POST   "account/passkeys/remove" Isolated => pages::account::passkeys::remove_passkey(body);
    POST   "account/passkeys/ask" Isolated => pages::account::passkeys::require_passkey(body);
    POST   "account/recovery-codes" Isolated => pages::account::passkeys::replace_recovery_codes(body);
    POST   "account/password" Isolated => pages::account::password::change_password(body);
    POST   "account/apps/remove" Isolated => pages::account::apps::withdraw_consent(body);
    POST   "account/links" Isolated => pages::account::links::begin_link(body);
    POST   "account/links/remove" Isolated => pages::account::links::remove_link(body);
    GET    "console" Isolated => pages::console::overview::show_console();
    POST   "console" Isolated => pages::console::actions::run_action(body);
    GET    "console/user" Isolated => pages::console::details::show_user();
    GET    "console/client" Isolated => pages::console::details::show_client();
    GET    "language/{tag}" => pages::language_choice::choose_language(tag);
    GET    "style.css" Reads => pages::style_sheet();
    GET    "page.js" Reads => pages::page_script();
    GET    "logo" Reads => pages::logo();
    GET    "form-post.js" Reads => pages::form_post::form_post_script();
    GET    "passkey.js" Reads => pages::passkey::passkey_script();
    GET    "admin/openapi.json" AnyOrigin Reads => admin::openapi::describe_requests();
    GET    "metrics" Reads => metrics::show_metrics();
    GET    "health/live" Reads => pages::health::is_live();
    GET    "health/ready" Reads => pages::health::is_ready();
};

/// The routes of FHIR, without the terminology operations.
static FHIR: &[Route] = routes! {
    GET    "fhir/R4/metadata" AnyOrigin => fhir::metadata::read_metadata();
    GET    "fhir/R4/.well-known/smart-configuration" AnyOrigin => oauth::discovery::smart_configuration();
    GET    "fhir/R4/$export" Cors NoHead => fhir::export::export_system(body);
    POST   "fhir/R4/$export" Cors => fhir::export::export_system(body);
    GET    "fhir/R4/Patient/$export" Cors NoHead => fhir::export::export_patients(body);
    POST   "fhir/R4/Patient/$export" Cors => fhir::export::export_patients(body);
    GET    "fhir/R4/Group/{id}/$export" Cors NoHead => fhir::export::export_group(id, body);
    POST   "fhir/R4/Group/{id}/$export" Cors => fhir::export::export_group(id, body);
    POST   "fhir/R4/$closure" Cors => fhir::closure::maintain_closure(body);
    GET    "fhir/R4/syndication.xml" Cors => fhir::syndication::read_feed();
    GET    "fhir/R4/syndication/{release}" Cors => fhir::syndication::download_release(release);
    GET    "fhir/R4/$versions" AnyOrigin => fhir::metadata::read_versions();
    POST   "fhir/R4/$versions" AnyOrigin Reads => fhir::metadata::read_versions();
    GET    "fhir/R4/bulk/{job}" Cors => fhir::export::export_status(job);
    DELETE "fhir/R4/bulk/{job}" Cors => fhir::export::delete_export(job);
    GET    "fhir/R4/bulk/{job}/{file}" Cors => fhir::download::download_file(job, file);
    POST   "fhir/R4" Cors => fhir::bundle::execute_bundle(body);
    POST   "fhir/R4/" Cors => fhir::bundle::execute_bundle(body);
    GET    "fhir/R4/_history" Cors => fhir::history::system_history();
    GET    "fhir/R4/{kind}" Cors => fhir::search::search_by_get(kind);
    POST   "fhir/R4/{kind}" Cors => fhir::resource::create_resource(kind, body);
    PUT    "fhir/R4/{kind}" Cors => fhir::resource::conditional_update(kind, body);
    DELETE "fhir/R4/{kind}" Cors => fhir::resource::conditional_delete(kind);
    POST   "fhir/R4/{kind}/_search" Cors Reads => fhir::search::search_by_post(kind, body);
    GET    "fhir/R4/{kind}/_history" Cors => fhir::history::type_history(kind);
    GET    "fhir/R4/{kind}/{id}" Cors => fhir::resource::read_resource(kind, id);
    PUT    "fhir/R4/{kind}/{id}" Cors => fhir::resource::update_resource(kind, id, body);
    DELETE "fhir/R4/{kind}/{id}" Cors => fhir::resource::delete_resource(kind, id);
    GET    "fhir/R4/{kind}/{id}/_history" Cors => fhir::history::instance_history(kind, id);
    GET    "fhir/R4/{kind}/{id}/_history/{version}" Cors => fhir::resource::read_version(kind, id, version);
};

/// The routes of the terminology operations.
static OPERATIONS: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = Vec::new();
    for &operation in TerminologyOperation::ALL {
        let row = operation.row();
        let (resource_type, name) = (row.resource_type, row.name);
        let mut paths = vec![format!("fhir/R4/{resource_type}/${name}")];
        if row.on_instances {
            paths.push(format!("fhir/R4/{resource_type}/{{id}}/${name}"));
        }
        let methods: &[Method] = match row.methods {
            OperationMethods::GetAndPost => &[Method::GET, Method::POST],
            OperationMethods::Post => &[Method::POST],
        };
        for path in paths {
            routes.extend(methods.iter().map(|method| Route {
                method: method.clone(),
                path: path.clone().into(),
                flags: &[RouteFlag::Cors, RouteFlag::Reads],
                #[cfg(test)]
                parameters: &["body"],
                handler: Handler::Operation(operation),
            }));
        }
    }
    routes
});

/// The routes of the administration.
static ADMIN: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let routes = COMMANDS.iter().flat_map(|row| row.doors.routes.iter().map(move |route| (row, route)));
    let route = |(row, route): (&'static CommandRow, &'static AdminRoute)| Route {
        method: route.method.of_http(),
        path: format!("admin/{}", route.path).into(),
        flags: &[],
        #[cfg(test)]
        parameters: &["body"],
        handler: Handler::Command(row, route),
    };
    routes.map(route).collect()
});

/// The routes of FHIR.
pub fn of_fhir() -> impl Iterator<Item = &'static Route> {
    FHIR.iter().chain(OPERATIONS.iter())
}

/// All routes.
pub fn all() -> impl Iterator<Item = &'static Route> {
    [OAUTH, WELL_KNOWN, PAGES].into_iter().flatten().chain(ADMIN.iter()).chain(of_fhir())
}
