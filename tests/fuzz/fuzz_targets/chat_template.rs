#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    hankel_tests::readers::read("chat_template", bytes);
});
