//! Authorization requests and their answers: checks, pushed requests, interaction with the user, consent and
//! devices.

pub mod authorization_service;
pub mod consent;
pub mod device;
pub mod interaction;
pub mod large_request;
pub mod launch;
pub mod pushed_request;
pub mod refusal;
pub mod reply;
pub mod request;
