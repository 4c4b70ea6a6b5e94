//! Every test of this crate's surface, in one program.

#[path = "../../../lti/tests/all/common/mod.rs"]
mod common;
mod far_from_normal;
mod golden_plants;
mod hrm_file;
mod proof;
mod textbook_plants;
