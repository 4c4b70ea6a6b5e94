//! Several processes that want one output: one gets it, the others say so.

use crate::binaries::{Binaries, command, run};
use crate::kills::Whole;
use crate::tally::Tally;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Reduces one adapter three times at once to one output, and begins three runs in one directory.
pub fn attack(b: &Binaries, whole: &Whole, place: &Path, count: usize, tally: &mut Tally) -> Result<()> {
    let adapter = whole.run.join("adapters/hrm").display().to_string();
    for number in 0..count {
        let folder = place.join(number.to_string());
        fs::create_dir_all(&folder)?;
        let reduce = |order: &str| ["reduce", &adapter, "-o", "out", "--order", order].map(str::to_owned).to_vec();
        let codes = together(&b.bt, ["2", "3", "4"].map(reduce), &folder)?;
        let verified = run(&b.bt, &["verify", &adapter, "out"], &folder)?.status.code();
        let left: Vec<_> =
            fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
        let good = codes == [0, 2, 2] && verified == Some(0) && left == ["out"];
        let problem = (!good).then(|| format!("exit codes {codes:?}, verify {verified:?}, left {left:?}"));
        tally.add("three reductions to one output", problem);

        let fit = ["fit", "../../run.toml", "--out", "run", "--set", "train.steps=4"].map(str::to_owned).to_vec();
        let codes = together(&b.train, [fit.clone(), fit.clone(), fit], &folder)?;
        tally.add("three runs in one directory", (codes != [0, 2, 2]).then(|| format!("exit codes {codes:?}")));
    }
    Ok(())
}

fn together(program: &Path, all: [Vec<String>; 3], folder: &Path) -> Result<Vec<i32>> {
    let children = all.map(|arguments| command(program, &arguments, folder).spawn());
    let mut codes = Vec::new();
    for child in children {
        codes.push(child?.wait_with_output()?.status.code().unwrap_or(-1));
    }
    codes.sort_unstable();
    Ok(codes)
}
