//! Files of weights: model directories, memory-mapped ([`model_files`]), and shards of them; formats without tensors are those
//! of [`hankel_files`].

pub(crate) mod mapped;
pub mod model_files;
mod quantized;
mod shards;
mod tensor_file;

pub use hankel_files::*;
pub use model_files::ModelFiles;
pub use shards::ShardWriter;
pub use tensor_file::write_tensors;
