//! Writing a model directory in bounded memory: tensors are handed over one after the other, and a shard is written, by a
//! thread of its own, as soon as it is full.

use super::model_files::{INDEX_FILE, WEIGHTS_FILE};
use super::quantized;
use super::tensor_file::{Part, write};
use hankel_core::Tensor;
use hankel_files::{Result, WeightsError};
use hankel_io::{Existing, PendingFolder};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle};

/// A model directory that is being written. It appears when [`ShardWriter::finish`] succeeds, and not otherwise.
pub struct ShardWriter {
    /// Declared, and so dropped, before the folder that it writes to.
    writing: Writing,
    folder: PendingFolder,
    limit: usize,
    held: usize,
    pending: Vec<Part>,
    /// Tensors of each shard so far.
    shards: Vec<Vec<String>>,
    total: usize,
}

/// The shard that is being written, if one is.
struct Writing(Option<JoinHandle<Result<()>>>);

impl Writing {
    fn wait(&mut self) -> Result<()> {
        let Some(thread) = self.0.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // Dropped because of another error, which is the one to report.
            let _ = thread.join();
        }
    }
}

impl ShardWriter {
    /// Begins the directory `path`. No more than twice `limit` bytes of tensors are held, the largest tensor aside: one shard
    /// is filled while the one before it is written.
    ///
    /// # Errors
    /// When it exists and may not be replaced, or nothing can be written beside it.
    pub fn create(path: &Path, existing: Existing, limit: usize) -> Result<Self> {
        let folder = PendingFolder::create(path, existing)?;
        let (pending, shards) = (Vec::new(), Vec::new());
        Ok(ShardWriter { writing: Writing(None), folder, limit, held: 0, pending, shards, total: 0 })
    }

    /// Adds a tensor as it is; quantised ones in the layout of bitsandbytes. Its memory is shared until it is written.
    ///
    /// # Errors
    /// When a shard cannot be written.
    pub fn push(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        if let Some(matrix) = tensor.nf4() {
            return quantized::parts(name, tensor, matrix)?.into_iter().try_for_each(|part| self.push_part(part));
        }
        self.push_part(Part::of(name, tensor)?)
    }

    fn push_part(&mut self, part: Part) -> Result<()> {
        let bytes = part.bytes().len();
        if !self.pending.is_empty() && self.held + bytes > self.limit {
            self.flush()?;
        }
        self.held += bytes;
        self.total += bytes;
        self.pending.push(part);
        Ok(())
    }

    /// Adds a file beside the weights, or in a folder beside them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            let folder = self.folder.temporary().join(folder);
            fs::create_dir_all(&folder).map_err(WeightsError::io("create", folder))?;
        }
        Ok(self.folder.write(name, bytes)?)
    }

    fn temporary_name(shard: usize) -> String {
        format!("shard-{shard}")
    }

    /// Hands the full shard to a thread, once the one before it is on the disk.
    fn flush(&mut self) -> Result<()> {
        self.writing.wait()?;
        let path = self.folder.temporary().join(Self::temporary_name(self.shards.len()));
        let parts = std::mem::take(&mut self.pending);
        self.shards.push(parts.iter().map(|part| part.name.clone()).collect());
        self.held = 0;
        let thread = thread::Builder::new().name("shard".to_owned());
        let folder = self.folder.temporary();
        let writing =
            thread.spawn(move || write(&path, &parts)).map_err(WeightsError::io("begin a thread for", folder))?;
        self.writing = Writing(Some(writing));
        Ok(())
    }

    /// Writes what is left, names the shards, adds their index, and gives the directory its name.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if !self.pending.is_empty() || self.shards.is_empty() {
            self.flush()?;
        }
        self.writing.wait()?;
        let count = self.shards.len();
        let name = |i: usize| {
            if count == 1 { WEIGHTS_FILE.to_owned() } else { format!("model-{:05}-of-{count:05}.safetensors", i + 1) }
        };
        let mut map = BTreeMap::new();
        for (i, tensors) in self.shards.iter().enumerate() {
            let [from, to] = [Self::temporary_name(i), name(i)].map(|name| self.folder.temporary().join(name));
            fs::rename(&from, &to).map_err(WeightsError::io("rename", &from))?;
            map.extend(tensors.iter().map(|tensor| (tensor.as_str(), name(i))));
        }
        if count > 1 {
            let index = json!({ "metadata": { "total_size": self.total }, "weight_map": map });
            let text = serde_json::to_vec_pretty(&index).expect("names and numbers");
            self.folder.write(INDEX_FILE, &text)?;
        }
        Ok(self.folder.commit()?)
    }
}
