//! Writing a model directory in bounded memory: tensors are handed over one after the other, and a shard is written as soon
//! as it is full.

use super::atomic::{Existing, PendingFolder};
use super::error::{Result, WeightsError};
use super::model_files::{INDEX_FILE, WEIGHTS_FILE};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// A model directory that is being written. It appears when [`ShardWriter::finish`] succeeds, and not otherwise.
pub struct ShardWriter {
    folder: PendingFolder,
    limit: usize,
    held: usize,
    pending: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
    /// Tensors of each shard written so far.
    shards: Vec<Vec<String>>,
    total: usize,
}

impl ShardWriter {
    /// Begins the directory `path`. No more than `limit` bytes of tensors are held, the largest tensor aside.
    ///
    /// # Errors
    /// When it exists and may not be replaced, or nothing can be written beside it.
    pub fn create(path: &Path, existing: Existing, limit: usize) -> Result<Self> {
        let folder = PendingFolder::create(path, existing)?;
        Ok(ShardWriter { folder, limit, held: 0, pending: Vec::new(), shards: Vec::new(), total: 0 })
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// When a shard cannot be written.
    pub fn push(&mut self, name: String, dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<()> {
        if !self.pending.is_empty() && self.held + bytes.len() > self.limit {
            self.flush()?;
        }
        self.held += bytes.len();
        self.total += bytes.len();
        self.pending.push((name, dtype, shape, bytes));
        Ok(())
    }

    /// Adds a file beside the weights.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.folder.write(name, bytes)
    }

    fn temporary_name(shard: usize) -> String {
        format!("shard-{shard}")
    }

    fn flush(&mut self) -> Result<()> {
        let path = self.folder.temporary().join(Self::temporary_name(self.shards.len()));
        let fail = |reason: String| WeightsError::content(&path, reason);
        let mut views = Vec::with_capacity(self.pending.len());
        for (name, dtype, shape, bytes) in &self.pending {
            let view =
                TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| fail(format!("tensor {name}: {e}")))?;
            views.push((name.as_str(), view));
        }
        // The file appears by a rename and would be readable by its owner only: it gets what a new file has here.
        let usual = File::create(&path).and_then(|file| file.metadata()).map_err(WeightsError::io("create", &path))?;
        safetensors::serialize_to_file(views, Some([("format".to_owned(), "pt".to_owned())].into()), &path)
            .map_err(|e| fail(e.to_string()))?;
        fs::set_permissions(&path, usual.permissions())
            .and_then(|()| File::open(&path)?.sync_all())
            .map_err(WeightsError::io("write", &path))?;
        self.shards.push(self.pending.drain(..).map(|(name, ..)| name).collect());
        self.held = 0;
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
        self.folder.commit()
    }
}
