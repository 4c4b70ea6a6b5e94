//! Parameters that adapters of a set have in common.

use crate::parameter::Parameter;
use hankel_core::Result;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Parameters by name: the first adapter that asks makes one, the others get it.
#[derive(Default)]
pub struct SharedParameters(RefCell<BTreeMap<String, Parameter>>);

impl SharedParameters {
    /// The parameter `name`.
    pub(crate) fn get(&self, name: &str) -> Option<Parameter> {
        self.0.borrow().get(name).cloned()
    }

    /// The parameter `name`, made by `make` if it is not there yet.
    pub(crate) fn get_or_insert(&self, name: &str, make: impl FnOnce() -> Result<Parameter>) -> Result<Parameter> {
        if let Some(parameter) = self.get(name) {
            return Ok(parameter);
        }
        let parameter = make()?;
        self.0.borrow_mut().insert(name.to_owned(), parameter.clone());
        Ok(parameter)
    }
}
