//! The short form of the campaign.

use std::process::Command;

#[test]
fn the_short_campaign_has_no_failures() {
    let output = Command::new(env!("CARGO_BIN_EXE_reliability")).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("kill -9 at a random instant: 50 attempts, 0 failures"), "{text}");
}
