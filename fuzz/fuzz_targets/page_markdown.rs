#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| docwharf_fuzz::check("page_markdown", data));
