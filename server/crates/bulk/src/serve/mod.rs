//! Operations for clients and operators: start, poll, delete, download.

pub mod address;
pub mod download;
pub(crate) mod manifest;
pub mod operator;
pub mod service;
