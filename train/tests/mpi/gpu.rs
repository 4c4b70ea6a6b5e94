//! A GPU for each process.

use super::{Place, finish, on, same};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Mesa's description of its software driver for the Vulkan loader, and the library that it names.
fn software_driver() -> Option<(PathBuf, PathBuf)> {
    let folders = ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    let description =
        paths.find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("lvp_icd")))?;
    let content: Value = serde_json::from_slice(&fs::read(&description).ok()?).ok()?;
    let library = Path::new(content["ICD"]["library_path"].as_str()?);
    // A name alone is looked for among the system's libraries.
    let systems = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join(library));
    let places = [description.parent()?.join(library), Path::new("/usr/lib64").join(library)];
    let library = places.into_iter().chain(systems).find(|path| path.is_file())?;
    Some((description, library))
}

/// Two processes, each on a GPU of its own, end with the bits of one. A copy of the software driver is the second GPU.
#[test]
fn every_process_takes_the_gpu_of_its_number() {
    let Some((description, library)) = software_driver() else {
        let required = std::env::var_os("HANKEL_REQUIRE_GPU").is_some_and(|value| value == "1");
        assert!(!required, "HANKEL_REQUIRE_GPU is set, and Mesa's software driver for Vulkan is not installed");
        return eprintln!("SKIPPED: Mesa's software driver for Vulkan is not installed");
    };
    let place = Place::new();
    fs::copy(library, place.path("copy.so")).unwrap();
    let copied = serde_json::json!({
        "file_format_version": "1.0.0",
        "ICD": { "library_path": place.path("copy.so"), "api_version": "1.1.0" },
    });
    let second = place.write("second.json", copied.to_string());
    let drivers = std::env::join_paths([&description, &second]).unwrap();
    place.write("config.toml", super::CONFIG);
    let fit = |processes: usize, out: &str| {
        let set = ["--set", "device=gpu:{local_rank}", "--set", "train.steps=8", "--set", "train.accumulation=3"];
        let mut command = on(&place, processes, &[&["fit", "config.toml", "--out", out][..], &set].concat());
        // The second name is that of older loaders.
        command.env("VK_DRIVER_FILES", &drivers).env("VK_ICD_FILENAMES", &drivers);
        finish(command)
    };
    for (processes, out) in [(1, "one"), (2, "two")] {
        let finished = fit(processes, out);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let result: Value = serde_json::from_slice(&fs::read(place.path(out).join("result.json")).unwrap()).unwrap();
        assert!(result["environment"]["device"].as_str().unwrap().starts_with("gpu"), "{}", result["environment"]);
    }
    same(&place, "one", "two");
    // There is no third one, and the process that has none says so.
    let refused = fit(3, "three");
    refused.refused(&["process 2 on ", "gpu:2: there is no such GPU"]);
    assert!(!place.path("three").exists());
}
