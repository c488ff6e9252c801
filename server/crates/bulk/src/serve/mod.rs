//! Operations of clients and operators: start, poll and delete an export, and download its files.

pub mod address;
pub mod archive;
pub mod download;
pub(crate) mod manifest;
pub mod operator;
pub mod service;
