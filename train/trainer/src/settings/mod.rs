//! Reading and checking of settings: the tree of a TOML document, typed settings from it, and errors that name file, line and
//! key. Nothing here knows a setting; [`crate::config`] and [`crate::tasks`] do.

pub(crate) mod check;
pub(crate) mod de;
#[cfg(test)]
pub(crate) mod documented;
pub(crate) mod error;
mod paths;
pub(crate) mod tree;

pub use error::{ConfigError, Origin};
pub(crate) use paths::Paths;

pub(crate) use error::nearest;
