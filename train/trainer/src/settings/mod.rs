//! Reading and checking of settings: the tree of a TOML document, typed settings from it, and errors that name file, line and
//! key. Nothing here knows a setting, apart from the names in `foreign`; [`crate::config`] and
//! [`crate::tasks`] do.

pub(crate) mod check;
pub(crate) mod de;
#[cfg(test)]
pub(crate) mod documented;
pub(crate) mod error;
mod foreign;
mod paths;
pub(crate) mod schema;
pub(crate) mod tree;

pub use error::{ConfigError, Origin};
pub(crate) use paths::Paths;

pub(crate) use error::nearest;
