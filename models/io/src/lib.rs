//! Input and output that loses nothing.
//!
//! Every file and folder that Hankel writes goes through [`output`]: it appears complete or not at all, a device or a pipe is
//! written to and never replaced, and what must not exist yet is never replaced. Every file that is read goes through
//! [`input`]: it is a regular file, and unpacks to a bounded size. Names that come from files pass [`name`].

mod error;
pub mod input;
mod leftovers;
pub mod lock;
pub mod memory;
pub mod name;
pub mod output;
mod rename;
pub mod terminal;

pub use error::{Error, Result};
pub use leftovers::{check_folder, clean, clean_below, is_temporary};
pub use lock::open_to_write;
pub use output::{
    Existing, Outputs, PendingFile, PendingFolder, create_folder, remove_whole, write_file, write_folder,
};
